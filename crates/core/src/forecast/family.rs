//! The kernel family of one of MIOpen's solvers: its knobs, the rules that say which values are
//! legal for a problem, its tuner space and derived features. Input: a [`FamilySpec`], whose rules
//! are expressions in text; [`Family::new`] compiles them. A [`Family`] then answers for a
//! [`Problem`] which vectors (one value per knob) are legal and what their features are.
//!
//! A *legal* vector is one that the kernel accepts. The *tuner space*, from which predictions come,
//! holds the vectors that the solver's own exhaustive search times: the legal vectors of a main set
//! of values or, where none of them is legal, of a spare set.

use super::Problem;
use super::columns::{ColumnLevel, Columns, TooLarge};
use super::program::{Program, Schedule, UNDEFINED};
use super::spec::{FamilyError, FamilyKnob, FamilySpec, SpaceOfError, check};
use crate::space::{Knob, Names, Role, Space, SpaceError, Term};
use crate::text::TextError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of candidate sets that are kept for later problems with the same set.
const KEPT: usize = 64;

/// A family, ready to use. See [`FamilySpec`].
pub struct Family {
    spec: FamilySpec,
    program: Program,
    words: Vec<u32>,
    numbers: Vec<u32>,
    knobs: Vec<u32>,
    legal: Vec<u32>,
    /// `legal` and `tuned` by the level at which they are known.
    tuned: Vec<Vec<u32>>,
    features: Vec<u32>,
    kernel: Vec<u32>,
    /// The nodes that constraints need, and those that features and kernels need.
    for_constraints: Schedule,
    for_features: Schedule,
    /// The nodes of a problem on which its candidates depend.
    frontier: Vec<u32>,
    candidates: Mutex<HashMap<Vec<i64>, Arc<Candidates>>>,
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Family({}, {} knobs)", self.spec.solver, self.spec.knobs.len())
    }
}

/// The vectors of a problem's tuner space.
#[derive(Debug, PartialEq, Eq)]
pub struct Candidates {
    /// Numbers in a vector.
    pub width: usize,
    /// Positions of values in their knobs' lists ([`FamilyKnob::values`]), one vector after another
    /// in lexicographic order.
    pub table: Vec<u16>,
    /// Whether they come from the spare set.
    pub spare: bool,
}

impl Candidates {
    /// How many there are; none for a problem that the kernel cannot compute.
    pub fn len(&self) -> usize {
        self.table.len() / self.width
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The i-th vector.
    pub fn row(&self, i: usize) -> &[u16] {
        &self.table[i * self.width..(i + 1) * self.width]
    }

    /// Where a vector stands.
    pub fn find(&self, row: &[u16]) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.row(middle).cmp(row) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

impl Family {
    /// Compiles a family.
    pub fn new(spec: FamilySpec) -> Result<Family, FamilyError> {
        check(&spec)?;
        let mut program = Program::default();
        // What expressions may name: only names and words matter to the parser.
        let mut names = Vec::new();
        let words: Vec<u32> = spec.words.iter().map(|(n, _)| program.input(n, 0)).collect();
        names.extend(spec.words.iter().map(|(n, all)| {
            Knob::words(n, Role::Choice, &all.iter().map(String::as_str).collect::<Vec<_>>())
        }));
        let numbers = spec.numbers.iter().map(|(n, _)| program.input(n, 0)).collect();
        let knobs = spec
            .knobs
            .iter()
            .enumerate()
            .map(|(k, knob)| program.input(&knob.name, k + 1))
            .collect();
        let number = |n: &String| Knob::ints(n, Role::Choice, [0]);
        names.extend(spec.numbers.iter().map(|(n, _)| number(n)));
        names.extend(spec.knobs.iter().map(|k| number(&k.name)));
        let add = |program: &mut Program, names: &[Knob], text: &String| {
            let fault = |error: TextError| FamilyError::Expression {
                solver: spec.solver.clone(),
                text: text.clone(),
                error: Box::new(error),
            };
            let term = Term::parse(text, Names { knobs: names, constants: &[] }).map_err(fault)?;
            let unknown =
                |name| TextError { line: 1, column: 1, message: format!("there is no `{name}`") };
            program.add(&term).map_err(|name| fault(unknown(name)))
        };
        for (name, text) in &spec.definitions {
            let node = add(&mut program, &names, text)?;
            program.define(name, node);
            names.push(number(name));
        }
        let mut all = |texts: &mut dyn Iterator<Item = &String>| -> Result<Vec<u32>, FamilyError> {
            texts.map(|t| add(&mut program, &names, t)).collect()
        };
        let legal = all(&mut spec.legal.iter())?;
        let extra = all(&mut spec.tuned.iter())?;
        let features = all(&mut spec.features.iter().map(|(_, t)| t))?;
        let kernel = all(&mut spec.kernel.iter())?;
        let levels = spec.knobs.len() + 1;
        let constraints: Vec<u32> = legal.iter().chain(&extra).copied().collect();
        let mut tuned = vec![Vec::new(); levels];
        for &c in &constraints {
            tuned[program.level(c)].push(c);
        }
        let frontier = program.frontier(&constraints);
        let for_constraints = program.schedule(&constraints, levels);
        let for_features = program.schedule(&[&features[..], &kernel].concat(), levels);
        let candidates = Mutex::default();
        Ok(Family {
            spec,
            program,
            words,
            numbers,
            knobs,
            legal,
            tuned,
            features,
            kernel,
            for_constraints,
            for_features,
            frontier,
            candidates,
        })
    }

    /// The specification that it was compiled from.
    pub fn spec(&self) -> &FamilySpec {
        &self.spec
    }

    /// The name of the solver.
    pub fn solver(&self) -> &str {
        &self.spec.solver
    }

    /// Whether constraints define what is legal; otherwise the space is a list of vectors.
    pub fn is_constrained(&self) -> bool {
        self.spec.listed.is_empty()
    }

    /// The positions of values in their knobs' lists; `None` where one is not in its list or there
    /// are too few or too many.
    pub fn positions(&self, values: &[i64]) -> Option<Vec<u16>> {
        let at = |(v, k): (&i64, &FamilyKnob)| k.values.binary_search(v).ok().map(|i| i as u16);
        (values.len() == self.spec.knobs.len())
            .then(|| values.iter().zip(&self.spec.knobs).map(at).collect())?
    }

    /// The values at positions.
    pub fn values(&self, row: &[u16]) -> Vec<i64> {
        row.iter().zip(&self.spec.knobs).map(|(&i, k)| k.values[i as usize]).collect()
    }

    /// The family for one problem.
    pub fn instance(&self, problem: &Problem) -> Result<Instance<'_>, FamilyError> {
        let mut base = self.program.values();
        for ((name, known), &node) in self.spec.words.iter().zip(&self.words) {
            let solver = || self.spec.solver.clone();
            let word = problem
                .word(name)
                .ok_or_else(|| FamilyError::Lacks { solver: solver(), name: name.clone() })?;
            let at = known.iter().position(|k| k == word);
            let unknown = || FamilyError::Word {
                solver: solver(),
                name: name.clone(),
                word: word.into(),
                known: known.join(", "),
            };
            base[node as usize] = at.ok_or_else(unknown)? as i64;
        }
        for ((name, default), &node) in self.spec.numbers.iter().zip(&self.numbers) {
            let lacks =
                || FamilyError::Lacks { solver: self.spec.solver.clone(), name: name.clone() };
            base[node as usize] = problem.number(name).or(*default).ok_or_else(lacks)?;
        }
        self.program.run(&self.for_constraints, 0, &mut base);
        self.program.run(&self.for_features, 0, &mut base);
        Ok(Instance { family: self, base })
    }

    /// Whether the values are legal for a problem; see [`Instance::is_legal`].
    pub fn is_legal(&self, problem: &Problem, values: &[i64]) -> bool {
        self.instance(problem).is_ok_and(|i| i.is_legal(values))
    }

    /// The tuner space of a problem, as the rest of Squall knows spaces.
    pub fn space(&self, problem: &Problem) -> Result<Space, SpaceOfError> {
        Ok(self.instance(problem)?.space()?)
    }

    fn enumerate(&self, base: &[i64], spare: bool) -> Candidates {
        let mut c = Candidates { width: self.spec.knobs.len(), table: Vec::new(), spare };
        if !self.holds(0, base) {
            return c;
        }
        if !self.is_constrained() {
            let position = |v: &Vec<i64>| self.positions(v).unwrap_or_default();
            c.table = self.spec.listed.iter().flat_map(position).collect();
            return c;
        }
        let tried = |k: &FamilyKnob| -> Vec<(u16, i64)> {
            let set = if spare { &k.spare } else { &k.main };
            set.iter().filter_map(|v| Some((k.values.binary_search(v).ok()? as u16, *v))).collect()
        };
        let tried: Vec<_> = self.spec.knobs.iter().map(tried).collect();
        match self.grow(&tried, base) {
            Ok(table) => c.table = table,
            Err(TooLarge) => self.walk(
                0,
                &tried,
                &mut base.to_vec(),
                &mut Vec::with_capacity(c.width),
                &mut c.table,
            ),
        }
        c
    }

    /// All vectors that hold, level by level.
    fn grow(&self, tried: &[Vec<(u16, i64)>], base: &[i64]) -> Result<Vec<u16>, TooLarge> {
        let mut columns = Columns::new(&self.program, base)?;
        for (k, tried) in tried.iter().enumerate() {
            columns.grow(self.knobs[k], tried)?;
            columns.run(&self.for_constraints)?;
            columns.keep(&self.tuned[k + 1]);
        }
        Ok(columns.table())
    }

    /// The same, vector by vector.
    fn walk(
        &self,
        k: usize,
        tried: &[Vec<(u16, i64)>],
        values: &mut [i64],
        row: &mut Vec<u16>,
        out: &mut Vec<u16>,
    ) {
        if k == tried.len() {
            out.extend_from_slice(row);
            return;
        }
        for &(i, v) in &tried[k] {
            values[self.knobs[k] as usize] = v;
            self.program.run(&self.for_constraints, k + 1, values);
            if self.holds(k + 1, values) {
                row.push(i);
                self.walk(k + 1, tried, values, row, out);
                row.pop();
            }
        }
    }

    fn holds(&self, level: usize, values: &[i64]) -> bool {
        self.tuned[level].iter().all(|&c| is_true(values[c as usize]))
    }
}

fn is_true(value: i64) -> bool {
    value != 0 && value != UNDEFINED
}

/// A family for one problem.
pub struct Instance<'a> {
    family: &'a Family,
    /// A value for each node that the problem fixes.
    base: Vec<i64>,
}

impl Instance<'_> {
    /// Whether the kernel accepts these values for this problem. In a listed family, whether they
    /// occurred.
    pub fn is_legal(&self, values: &[i64]) -> bool {
        let f = self.family;
        if !f.is_constrained() {
            return f.holds(0, &self.base)
                && f.spec.listed.binary_search_by(|l| l[..].cmp(values)).is_ok();
        }
        if f.positions(values).is_none() {
            return false;
        }
        let nodes = self.at(values);
        f.legal.iter().all(|&c| is_true(nodes[c as usize]))
    }

    /// Whether the values are in the tuner space: what [`Instance::candidates`] would find, for
    /// less.
    pub fn is_candidate(&self, values: &[i64]) -> bool {
        let f = self.family;
        let Some(row) = f.positions(values) else { return false };
        let in_main =
            values.iter().zip(&f.spec.knobs).all(|(v, k)| k.main.binary_search(v).is_ok());
        if !f.is_constrained() || !in_main {
            // Only a look at the main set says whether the spare one counts.
            return self.candidates().find(&row).is_some();
        }
        let nodes = self.at(values);
        f.tuned.iter().flatten().all(|&c| is_true(nodes[c as usize]))
    }

    /// The constraints' nodes at a vector.
    fn at(&self, values: &[i64]) -> Vec<i64> {
        let f = self.family;
        let mut nodes = self.base.clone();
        for (k, &v) in values.iter().enumerate() {
            nodes[f.knobs[k] as usize] = v;
            f.program.run(&f.for_constraints, k + 1, &mut nodes);
        }
        nodes
    }

    /// The tuner space: the main set or, where nothing in it is legal, the spare set.
    pub fn candidates(&self) -> Arc<Candidates> {
        let key: Vec<i64> = self.family.frontier.iter().map(|&i| self.base[i as usize]).collect();
        // The lock is never poisoned, because nothing panics while it is held.
        let lock = || self.family.candidates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return known.clone();
        }
        let mut found = self.family.enumerate(&self.base, false);
        if found.is_empty() {
            found = self.family.enumerate(&self.base, true);
        }
        let found = Arc::new(found);
        let mut kept = lock();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(key, found.clone());
        found
    }

    /// The same as a [`Space`], over all values of the knobs.
    pub fn space(&self) -> Result<Space, SpaceError> {
        let knobs = self
            .family
            .spec
            .knobs
            .iter()
            .map(|k| Knob::ints(&k.name, Role::Choice, k.values.iter().copied()));
        let candidates = self.candidates();
        Space::listed(
            knobs.collect(),
            candidates.table.chunks(candidates.width).map(Into::into).collect(),
        )
    }

    /// Derived features of vectors given by positions, one row of [`FamilySpec::features`] after
    /// another; 0 where one is undefined. Rows in lexicographic order cost least.
    pub fn features(&self, table: &[u16]) -> Vec<f32> {
        self.features_by_column(table).unwrap_or_else(|TooLarge| self.features_by_row(table))
    }

    fn features_by_column(&self, table: &[u16]) -> Result<Vec<f32>, TooLarge> {
        let f = self.family;
        let (width, count) = (f.knobs.len(), f.features.len());
        let n = table.len() / width;
        let mut out = vec![0.0f32; n * count];
        let mut columns = Columns::new(&f.program, &self.base)?;
        // For each row the number of leading values that it shares with the row before.
        let mut same: Vec<usize> = vec![0; n];
        for i in 1..n {
            let (a, b) = (&table[(i - 1) * width..i * width], &table[i * width..(i + 1) * width]);
            same[i] = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        }
        for k in 0..width {
            let mut level = ColumnLevel::default();
            let (mut parent, mut column) = (0u32, Vec::new());
            let values = &f.spec.knobs[k].values;
            for i in 0..n {
                // Every row stands for itself at the last level, equal ones too.
                let new = |k: usize| i == 0 || same[i] <= k;
                parent += u32::from(i > 0 && k > 0 && new(k - 1));
                if new(k) || k + 1 == width {
                    level.parents.push(parent);
                    level.positions.push(table[i * width + k]);
                    column.push(values[table[i * width + k] as usize] as f64);
                }
            }
            columns.push(f.knobs[k], level, column, values)?;
            columns.run(&f.for_features)?;
        }
        for (j, &node) in f.features.iter().enumerate() {
            let numbers = columns.numbers(node);
            for (row, x) in out.chunks_exact_mut(count).zip(numbers) {
                row[j] = if x.is_nan() { 0.0 } else { x as f32 };
            }
        }
        Ok(out)
    }

    fn features_by_row(&self, table: &[u16]) -> Vec<f32> {
        let f = self.family;
        let mut out = Vec::with_capacity(table.len() / f.knobs.len() * f.features.len());
        self.each(table, &mut |values| {
            let feature = |&i: &u32| {
                if values[i as usize] == UNDEFINED { 0.0 } else { values[i as usize] as f32 }
            };
            out.extend(f.features.iter().map(feature));
        });
        out
    }

    /// The part of a vector that reaches the compiler; vectors that are the same kernel have equal
    /// parts.
    pub fn kernel(&self, row: &[u16]) -> Vec<i64> {
        if self.family.kernel.is_empty() {
            return self.family.values(row);
        }
        let mut out = Vec::new();
        self.each(row, &mut |values| {
            out.extend(self.family.kernel.iter().map(|&i| values[i as usize]))
        });
        out
    }

    /// Visits the nodes' values for vectors, computing only what changes from one to the next.
    fn each(&self, table: &[u16], visit: &mut dyn FnMut(&[i64])) {
        let f = self.family;
        let width = f.knobs.len();
        let mut values = self.base.clone();
        let mut before: &[u16] = &[];
        for row in table.chunks_exact(width) {
            let same = row.iter().zip(before).take_while(|(a, b)| a == b).count();
            for k in same..width {
                values[f.knobs[k] as usize] = f.spec.knobs[k].values[row[k] as usize];
                f.program.run(&f.for_features, k + 1, &mut values);
            }
            before = row;
            visit(&values);
        }
    }
}
