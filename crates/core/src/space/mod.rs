//! Spaces of configurations: knobs, constraints, and the one definition of a legal configuration
//! (Kernel Tuner: search space with restrictions).
//!
//! [`Space::new`] compiles knobs and constraints into a decision diagram (one level a knob; equal
//! residual constraints share a node; branches without a legal configuration are cut). All answers
//! are read off that diagram: the number of legal configurations, the n-th of them, an even sample,
//! membership, and the [`Prefix`] cursor. Its size depends on the facts that constraints have to
//! remember between knobs, not on the number of configurations, so spaces of 10^12 raw combinations
//! open in milliseconds. Only a space makes a [`Configuration`]; its text, such as `k3=2,lanes=16`,
//! is its identity.

mod constraint;
mod diagram;
mod knob;
mod language;
mod operand;
mod text;

pub use constraint::Term;
use diagram::Diagram;
pub use diagram::MAX_NODES;
pub use knob::{Former, Knob, Neighbourhood, Role, Value};
pub use language::{Names, parse_values};
pub use text::{escaped, pairs, pieces};

use rand::{Rng, RngExt};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// A space that cannot be opened, or a text that is no configuration of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum SpaceError {
    #[error("knob `{0}` has no values")]
    EmptyKnob(String),
    #[error("knob `{0}` is defined twice")]
    DuplicateKnob(String),
    #[error("knob `{0}` lists a value twice or its numbers out of order")]
    UnsortedKnob(String),
    #[error("knob `{knob}` has {values} values; {MAX_VALUES} are the most")]
    LongKnob { knob: String, values: usize },
    #[error("a constraint names the unknown knob `{0}`")]
    UnknownKnob(String),
    #[error("no configuration satisfies all constraints")]
    Empty,
    #[error("the constraints entangle the knobs too much: over {MAX_NODES} distinct states")]
    TooEntangled,
    #[error("`{text}` is not a configuration of this space: {why}")]
    NotAConfiguration { text: String, why: String },
}

/// Larger spaces are not written out by [`Space::table`].
pub const MAX_TABLE: usize = 1 << 17;

/// The most values of a knob; a knob with more is refused.
pub const MAX_VALUES: usize = u16::MAX as usize;

struct Inner {
    knobs: Arc<[Knob]>,
    diagram: Diagram,
    /// See [`Space::table`].
    table: OnceLock<Vec<u16>>,
}

/// The legal configurations of a tunable; the only maker of [`Configuration`]s. Cheap to clone.
#[derive(Clone)]
pub struct Space {
    inner: Arc<Inner>,
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Space({} knobs, {} legal of {:e})",
            self.knobs().len(),
            self.len(),
            self.raw_size()
        )
    }
}

/// What every space asks of its knobs.
fn check(knobs: &[Knob]) -> Result<(), SpaceError> {
    for (i, k) in knobs.iter().enumerate() {
        if k.values.is_empty() {
            return Err(SpaceError::EmptyKnob(k.name.clone()));
        }
        if k.values.len() > MAX_VALUES {
            return Err(SpaceError::LongKnob { knob: k.name.clone(), values: k.values.len() });
        }
        if knobs[..i].iter().any(|o| o.name == k.name) {
            return Err(SpaceError::DuplicateKnob(k.name.clone()));
        }
        let sorted = k.numbers().is_none_or(|v| v.windows(2).all(|w| w[0] < w[1]));
        let distinct =
            k.values.iter().collect::<std::collections::HashSet<_>>().len() == k.values.len();
        if !sorted || !distinct {
            return Err(SpaceError::UnsortedKnob(k.name.clone()));
        }
    }
    Ok(())
}

impl Space {
    /// Compiles knobs and constraints. Every constraint must evaluate to non-zero; a division by
    /// zero makes it false.
    pub fn new(knobs: Vec<Knob>, constraints: &[Term]) -> Result<Space, SpaceError> {
        check(&knobs)?;
        let diagram = Diagram::build(&knobs, constraints)?;
        if diagram.count() == 0 {
            return Err(SpaceError::Empty);
        }
        Ok(Space {
            inner: Arc::new(Inner { knobs: knobs.into(), diagram, table: OnceLock::new() }),
        })
    }

    /// A space of just these configurations, given by the positions of their values: for spaces
    /// that are known as a list, without the rules behind it.
    pub fn listed(knobs: Vec<Knob>, mut points: Vec<Box<[u16]>>) -> Result<Space, SpaceError> {
        check(&knobs)?;
        let fits = |p: &[u16]| {
            p.len() == knobs.len()
                && p.iter().zip(&knobs).all(|(&i, k)| (i as usize) < k.values.len())
        };
        if let Some(p) = points.iter().find(|p| !fits(p)) {
            return Err(SpaceError::NotAConfiguration {
                text: format!("{p:?}"),
                why: "it fits no knobs".into(),
            });
        }
        points.sort_unstable();
        points.dedup();
        if points.is_empty() {
            return Err(SpaceError::Empty);
        }
        let diagram = Diagram::listed(knobs.len(), &points);
        Ok(Space {
            inner: Arc::new(Inner { knobs: knobs.into(), diagram, table: OnceLock::new() }),
        })
    }

    /// The space of all pairs of a configuration of this one and a configuration of `behind`, whose
    /// knobs have names that begin with the one and the other of `names`.
    pub fn then(&self, behind: &Space, names: [&str; 2]) -> Result<Space, SpaceError> {
        let named = |space: &Space, first: &str| {
            let knob = |k: &Knob| {
                let mut knob = k.clone();
                knob.name.insert_str(0, first);
                knob.formers.iter_mut().for_each(|f| f.knob.insert_str(0, first));
                knob
            };
            space.knobs().iter().map(knob).collect::<Vec<Knob>>()
        };
        let knobs = [named(self, names[0]), named(behind, names[1])].concat();
        check(&knobs)?;
        let diagram = self.inner.diagram.then(&behind.inner.diagram)?;
        Ok(Space {
            inner: Arc::new(Inner { knobs: knobs.into(), diagram, table: OnceLock::new() }),
        })
    }

    /// The knobs, in the order that a [`Prefix`] binds them.
    pub fn knobs(&self) -> &[Knob] {
        &self.inner.knobs
    }

    /// Position of a knob.
    pub fn knob(&self, name: &str) -> Option<usize> {
        self.knobs().iter().position(|k| k.name == name)
    }

    /// Combinations before constraints.
    pub fn raw_size(&self) -> f64 {
        self.knobs().iter().map(|k| k.values.len() as f64).product()
    }

    /// The number of legal configurations, at least one. Saturates at `u128::MAX`.
    #[allow(clippy::len_without_is_empty)] // a space is never empty
    pub fn len(&self) -> u128 {
        self.inner.diagram.count()
    }

    /// States that the constraints need to remember: the memory of this space.
    pub fn nodes(&self) -> usize {
        self.inner.diagram.nodes()
    }

    /// A cursor before the first knob.
    pub fn open(&self) -> Prefix {
        Prefix {
            space: self.clone(),
            node: self.inner.diagram.root(),
            bound: Vec::with_capacity(self.knobs().len()),
        }
    }

    /// The configuration with these value positions, if it is legal.
    pub fn configuration(&self, indices: &[usize]) -> Option<Configuration> {
        self.contains(indices).then(|| self.wrap(indices.iter().map(|&i| i as u16).collect()))
    }

    /// Whether these value positions are legal.
    pub fn contains(&self, indices: &[usize]) -> bool {
        self.inner.diagram.rank(indices.iter().copied()).is_some()
    }

    /// How many legal configurations come before this one: what [`Space::nth`] gives it back for.
    /// `None` where it is none of this space.
    pub fn rank(&self, configuration: &Configuration) -> Option<u128> {
        let same = Arc::ptr_eq(&self.inner.knobs, &configuration.knobs)
            || self.inner.knobs == configuration.knobs;
        if same { self.inner.diagram.rank(configuration.indices()) } else { None }
    }

    /// As [`Space::rank`], of a point given by the positions of its values.
    pub fn rank_of(&self, indices: &[u16]) -> Option<u128> {
        self.inner.diagram.rank(indices.iter().map(|&i| i as usize))
    }

    /// The `rank`-th legal configuration in the order of value positions.
    ///
    /// # Panics
    /// If `rank` is not below [`Space::len`].
    pub fn nth(&self, rank: u128) -> Configuration {
        assert!(rank < self.len(), "rank {rank} of {}", self.len());
        if let Some(table) = self.inner.table.get() {
            let d = self.knobs().len();
            return self.wrap(table[rank as usize * d..(rank as usize + 1) * d].into());
        }
        self.wrap(self.inner.diagram.nth(rank))
    }

    /// An evenly distributed legal configuration.
    pub fn sample(&self, rng: &mut impl Rng) -> Configuration {
        let rank = rng.random_range(0..self.len());
        self.wrap(self.inner.diagram.nth(rank))
    }

    /// All legal configurations, lazily.
    pub fn iter(&self) -> impl Iterator<Item = Configuration> + '_ {
        let mut rank = 0;
        std::iter::from_fn(move || {
            (rank < self.len()).then(|| {
                rank += 1;
                self.nth(rank - 1)
            })
        })
    }

    /// The value positions of all configurations, one after another in order, where there are at
    /// most [`MAX_TABLE`]; made once for all clones of a space.
    pub fn table(&self) -> Option<&[u16]> {
        let len = usize::try_from(self.len()).ok().filter(|&n| n <= MAX_TABLE)?;
        Some(
            self.inner
                .table
                .get_or_init(|| (0..len).flat_map(|r| self.inner.diagram.nth(r as u128)).collect()),
        )
    }

    /// Reads a configuration's canonical text, `tile_k=32,vec=16`, knobs in any order. Texts from
    /// before a knob or its values were renamed are read as well (see [`Knob::formerly`]).
    pub fn parse(&self, text: &str) -> Result<Configuration, SpaceError> {
        let fail = |why: String| SpaceError::NotAConfiguration { text: text.into(), why };
        // An old pair can say what two knobs decide now; a knob's own name goes first.
        let mut now: Vec<Option<usize>> = vec![None; self.knobs().len()];
        let mut before = now.clone();
        if let Some(odd) = pieces(text).find(|p| !p.trim().is_empty() && !p.contains('=')) {
            return Err(fail(format!("`{}` is not `knob=value`", odd.trim())));
        }
        for (name, value) in pairs(text) {
            let value = value.as_ref();
            let mut read = false;
            for (k, knob) in self.knobs().iter().enumerate() {
                let own = if knob.name == name { knob.position(value) } else { None };
                let old = knob.position_formerly(name, value);
                read |= own.or(old).is_some();
                (now[k], before[k]) = (own.or(now[k]), old.or(before[k]));
            }
            if !read && self.knob(name).is_some() {
                return Err(fail(format!("`{name}` has no value `{value}`")));
            } else if !read {
                return Err(fail(format!("there is no knob `{name}`")));
            }
        }
        let found = now.into_iter().zip(before).zip(self.knobs());
        let indices = found.map(|((now, before), knob)| {
            let absent = knob.absent.map(usize::from);
            now.or(before).or(absent).ok_or_else(|| fail(format!("`{}` is missing", knob.name)))
        });
        let indices: Vec<usize> = indices.collect::<Result<_, _>>()?;
        self.configuration(&indices).ok_or_else(|| fail("it breaks a constraint".into()))
    }

    /// The legal configuration nearest to one of another space, in that one's canonical text: knob
    /// by knob the allowed value nearest by ratio, or the same word, or the word that takes the
    /// fewest steps to it; where the text has no such value, the one that leaves most
    /// configurations open. None for an empty space.
    pub fn nearest(&self, text: &str) -> Option<Configuration> {
        let pairs: Vec<_> = pairs(text).collect();
        let mut p = self.open();
        while let Some(knob) = p.next_knob() {
            let wish =
                pairs.iter().rev().find(|pair| pair.0 == knob.name).map(|pair| pair.1.as_ref());
            let number = wish.and_then(|w| w.parse::<i64>().ok());
            let old = || pairs.iter().find_map(|pair| knob.position_formerly(pair.0, &pair.1));
            let absent = || knob.absent.filter(|_| wish.is_none()).map(usize::from);
            let at = wish.and_then(|w| knob.position(w)).or_else(old).or_else(absent);
            let apart = |v: usize| match (&knob.values[v], number, at) {
                (Value::Int(have), Some(want), _) if *have >= 0 && want >= 0 => {
                    ((*have as f64 + 0.5) / (want as f64 + 0.5)).ln().abs()
                }
                (Value::Int(have), Some(want), _) => have.abs_diff(want) as f64,
                (_, _, Some(at)) => knob.steps_between(v, at) as f64,
                _ => 1.0,
            };
            let v = p.allowed().min_by(|&a, &b| {
                apart(a).total_cmp(&apart(b)).then_with(|| p.count(b).cmp(&p.count(a)))
            })?;
            p.bind(v);
        }
        p.finish()
    }

    fn wrap(&self, indices: Box<[u16]>) -> Configuration {
        Configuration { knobs: self.inner.knobs.clone(), indices }
    }
}

/// One value for every knob of a space; legal by construction. Its text is its identity.
#[derive(Clone)]
pub struct Configuration {
    knobs: Arc<[Knob]>,
    indices: Box<[u16]>,
}

impl Configuration {
    /// Positions of the values in their knobs' lists.
    pub fn indices(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.indices.iter().map(|&i| i as usize)
    }

    /// The value of a knob by name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let k = self.knobs.iter().position(|k| k.name == name)?;
        Some(self.value(k))
    }

    /// The value of the k-th knob.
    pub fn value(&self, k: usize) -> &Value {
        &self.knobs[k].values[self.indices[k] as usize]
    }

    /// The number that a knob stands at.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Value::Int(i) => Some(*i),
            Value::Word(_) => None,
        }
    }

    /// The word that a knob stands at.
    pub fn word(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Word(w) => Some(w),
            Value::Int(_) => None,
        }
    }

    /// The value that a knob stood at in texts from before it was renamed (see
    /// [`Knob::formerly`]): the one that all knobs which decide the same now agree with.
    pub fn formerly(&self, name: &str) -> Option<&str> {
        let heirs = || {
            let all = self.knobs.iter().zip(self.indices());
            all.filter(|(k, _)| k.formers.iter().any(|f| f.knob == name))
        };
        let says = |(k, at): (&Knob, usize), v: &str| k.position_formerly(name, v) == Some(at);
        let (first, _) = heirs().next()?;
        let values = first.formers.iter().filter(|f| f.knob == name).map(|f| f.value.as_str());
        values.into_iter().find(|v| heirs().all(|heir| says(heir, v)))
    }

    /// Knobs and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Knob, &Value)> + '_ {
        self.knobs.iter().zip(self.indices()).map(|(k, i)| (k, &k.values[i]))
    }
}

impl PartialEq for Configuration {
    fn eq(&self, o: &Configuration) -> bool {
        self.indices == o.indices && (Arc::ptr_eq(&self.knobs, &o.knobs) || self.knobs == o.knobs)
    }
}

impl Eq for Configuration {}

impl Hash for Configuration {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.indices.hash(h);
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (k, v)) in self.iter().enumerate() {
            write!(f, "{}{}=", if i > 0 { "," } else { "" }, k.name)?;
            match v {
                Value::Int(i) => write!(f, "{i}")?,
                Value::Word(w) => f.write_str(&escaped(w))?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A cursor that binds knobs one after another and never enters a dead end.
#[derive(Clone)]
pub struct Prefix {
    space: Space,
    node: u32,
    bound: Vec<u16>,
}

impl Prefix {
    /// The knob that comes next, if one is left.
    pub fn next_knob(&self) -> Option<&Knob> {
        self.space.inner.knobs.get(self.bound.len())
    }

    /// Positions of the next knob's values that still lead to a configuration, ascending; never
    /// empty while a knob is left.
    pub fn allowed(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.space.inner.diagram.edges(self.node).iter().map(|e| e.value as usize)
    }

    /// How many configurations the value at this position leads to.
    pub fn count(&self, value: usize) -> u128 {
        let d = &self.space.inner.diagram;
        d.edges(self.node)
            .iter()
            .find(|e| e.value as usize == value)
            .map_or(0, |e| d.count_at(e.child))
    }

    /// Binds the next knob to the value at a position; false, and nothing happens, where that
    /// value is not allowed.
    pub fn bind(&mut self, value: usize) -> bool {
        match self.space.inner.diagram.child(self.node, value) {
            Some(child) => {
                self.node = child;
                self.bound.push(value as u16);
                true
            }
            None => false,
        }
    }

    /// The configuration, once every knob is bound.
    pub fn finish(self) -> Option<Configuration> {
        (self.bound.len() == self.space.knobs().len()).then(|| self.space.wrap(self.bound.into()))
    }
}

#[cfg(test)]
mod tests;
