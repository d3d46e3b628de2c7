//! The decision diagram behind a space of configurations. Input: knobs and constraints; output: a
//! graph that counts, lists, samples and tests the legal configurations. A node at level k stands
//! for all ways of binding the first k knobs that leave the same constraints to be met; its edges
//! are the values of knob k from which a legal configuration can still be reached, and its count is
//! the number of configurations below it. `space/mod.rs` wraps it as [`Space`](super::Space).

use super::{Knob, SpaceError, Term, Value};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash that takes a few cycles a word (the multiplication and rotation of Firefox's): keys here
/// are our own small numbers and terms, and there are millions of them.
#[derive(Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, x: u8) {
        self.write_u64(x.into());
    }
    fn write_u16(&mut self, x: u16) {
        self.write_u64(x.into());
    }
    fn write_u32(&mut self, x: u32) {
        self.write_u64(x.into());
    }
    fn write_u64(&mut self, x: u64) {
        self.0 = (self.0.rotate_left(5) ^ x).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    fn write_usize(&mut self, x: usize) {
        self.write_u64(x as u64);
    }
    fn finish(&self) -> u64 {
        // Products are well mixed at their top only, and tables look at the bottom.
        self.0.rotate_left(26)
    }
}

type Map<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;

/// The most nodes of a diagram; a space that needs more is refused.
pub const MAX_NODES: usize = 4_000_000;

pub(super) struct Edge {
    pub value: u16,
    pub child: u32,
    /// Configurations under the edges before this one.
    before: u128,
}

struct Node {
    first: u32,
    len: u16,
    count: u128,
}

pub(super) struct Diagram {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    root: u32,
}

/// The node below the last knob.
const LEAF: u32 = 0;
/// A residual constraint that cannot be met.
const FALSE: u32 = u32::MAX;
/// A residual constraint that is met whatever comes.
const TRUE: u32 = u32::MAX - 1;

/// The rest of a constraint, once some knobs are bound.
struct Residual {
    term: Term,
    /// For each knob whether the term contains it.
    uses: Vec<bool>,
    /// Where just one is: of each of its values whether it meets the constraint.
    last: Option<Box<[bool]>>,
}

struct Builder<'a> {
    knobs: &'a [Knob],
    numbers: Vec<Vec<i64>>,
    /// The least and the greatest number of each knob.
    ranges: HashMap<&'a str, (i64, i64)>,
    /// Residual constraints, each once.
    terms: Vec<Residual>,
    term_ids: Map<Term, u32>,
    bound: Map<(u32, u16, u16), u32>,
    memo: Map<(u16, Box<[u32]>), Option<u32>>,
    diagram: Diagram,
}

impl Diagram {
    pub fn build(knobs: &[Knob], constraints: &[Term]) -> Result<Diagram, SpaceError> {
        let numbers: Vec<Vec<i64>> = knobs
            .iter()
            .map(|k| {
                k.values
                    .iter()
                    .enumerate()
                    .map(|(i, v)| if let Value::Int(n) = v { *n } else { i as i64 })
                    .collect()
            })
            .collect();
        let range = |n: &Vec<i64>| {
            (n.iter().copied().min().unwrap_or(0), n.iter().copied().max().unwrap_or(0))
        };
        let ranges = knobs.iter().zip(&numbers).map(|(k, n)| (k.name.as_str(), range(n))).collect();
        let leaf = Node { first: 0, len: 0, count: 1 };
        let mut b = Builder {
            knobs,
            numbers,
            ranges,
            terms: Vec::new(),
            term_ids: Map::default(),
            bound: Map::default(),
            memo: Map::default(),
            diagram: Diagram { nodes: vec![leaf], edges: Vec::new(), root: LEAF },
        };
        let mut state = Vec::new();
        for t in constraints {
            if let Some(unknown) =
                t.knobs().into_iter().find(|n| !knobs.iter().any(|k| k.name == *n))
            {
                return Err(SpaceError::UnknownKnob(unknown.into()));
            }
            // Folds constants before any knob is bound.
            match b.intern(t.bind("", 0)) {
                FALSE => return Err(SpaceError::Empty),
                TRUE => {}
                id => state.push(id),
            }
        }
        state.sort_unstable();
        state.dedup();
        match b.node(0, state.into())? {
            Some(root) => {
                b.diagram.root = root;
                Ok(b.diagram)
            }
            None => Err(SpaceError::Empty),
        }
    }

    /// The diagram of a list of points, sorted and without duplicates.
    pub fn listed(depth: usize, points: &[Box<[u16]>]) -> Diagram {
        let leaf = Node { first: 0, len: 0, count: 1 };
        let mut d = Diagram { nodes: vec![leaf], edges: Vec::new(), root: LEAF };
        d.root = d.listed_node(0, depth, points, &mut HashMap::new());
        d
    }

    /// Equal lists of edges are one node: knobs that no constraint joins share what lies below.
    fn listed_node(
        &mut self,
        k: usize,
        depth: usize,
        points: &[Box<[u16]>],
        memo: &mut HashMap<Vec<(u16, u32)>, u32>,
    ) -> u32 {
        if k == depth {
            return LEAF;
        }
        let mut edges: Vec<(u16, u32)> = Vec::new();
        for group in points.chunk_by(|a, b| a[k] == b[k]) {
            edges.push((group[0][k], self.listed_node(k + 1, depth, group, memo)));
        }
        if let Some(&node) = memo.get(&edges) {
            return node;
        }
        let (first, mut count) = (self.edges.len() as u32, 0);
        for &(value, child) in &edges {
            self.edges.push(Edge { value, child, before: count });
            count += self.count_at(child);
        }
        self.nodes.push(Node { first, len: edges.len() as u16, count });
        memo.insert(edges, self.nodes.len() as u32 - 1);
        self.nodes.len() as u32 - 1
    }

    /// The diagram of all pairs of a configuration of one and a configuration of another.
    pub fn then(&self, behind: &Diagram) -> Result<Diagram, SpaceError> {
        let kept = behind.nodes.len() as u32;
        if self.nodes.len() + behind.nodes.len() > MAX_NODES {
            return Err(SpaceError::TooEntangled);
        }
        let moved = |node: u32| if node == LEAF { behind.root } else { kept + node - 1 };
        let (of_each, offset) = (behind.count(), behind.edges.len() as u32);
        let mut d = Diagram {
            nodes: behind.nodes.iter().map(|n| Node { ..*n }).collect(),
            edges: behind.edges.iter().map(|e| Edge { ..*e }).collect(),
            root: moved(self.root),
        };
        // The leaf is the first node.
        d.nodes.extend(self.nodes[1..].iter().map(|n| Node {
            first: n.first + offset,
            len: n.len,
            count: n.count.saturating_mul(of_each),
        }));
        d.edges.extend(self.edges.iter().map(|e| Edge {
            value: e.value,
            child: moved(e.child),
            before: e.before.saturating_mul(of_each),
        }));
        Ok(d)
    }

    pub fn root(&self) -> u32 {
        self.root
    }

    pub fn count(&self) -> u128 {
        self.count_at(self.root)
    }

    pub fn count_at(&self, node: u32) -> u128 {
        self.nodes[node as usize].count
    }

    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub fn edges(&self, node: u32) -> &[Edge] {
        let n = &self.nodes[node as usize];
        &self.edges[n.first as usize..n.first as usize + n.len as usize]
    }

    pub fn child(&self, node: u32, value: usize) -> Option<u32> {
        let e = self.edges(node);
        e.binary_search_by_key(&value, |e| e.value as usize).ok().map(|i| e[i].child)
    }

    /// How many configurations come before this one; `None` where it is not legal.
    pub fn rank(&self, indices: impl Iterator<Item = usize>) -> Option<u128> {
        let (mut node, mut rank) = (self.root, 0);
        for i in indices {
            let edges = self.edges(node);
            let e = &edges[edges.binary_search_by_key(&i, |e| e.value as usize).ok()?];
            rank += e.before;
            node = e.child;
        }
        (node == LEAF).then_some(rank)
    }

    pub fn nth(&self, mut rank: u128) -> Box<[u16]> {
        let mut out = Vec::new();
        let mut node = self.root;
        while node != LEAF {
            let edges = self.edges(node);
            let i = edges.partition_point(|e| e.before <= rank) - 1;
            rank -= edges[i].before;
            out.push(edges[i].value);
            node = edges[i].child;
        }
        out.into()
    }
}

impl Builder<'_> {
    fn intern(&mut self, t: Option<Term>) -> u32 {
        match t {
            None | Some(Term::Const(0)) => FALSE,
            Some(Term::Const(_)) => TRUE,
            // What the knobs' ranges decide need not be carried along, and dead ends show early.
            Some(t)
                if let Some(b) = t.bounds(&|k| self.ranges[k])
                    && (b == (0, 0) || b.0 > 0 || b.1 < 0) =>
            {
                if b == (0, 0) {
                    FALSE
                } else {
                    TRUE
                }
            }
            Some(t) => match self.term_ids.get(&t) {
                Some(&id) => id,
                None => {
                    let id = self.terms.len() as u32;
                    let names = t.knobs();
                    let uses: Vec<bool> =
                        self.knobs.iter().map(|k| names.contains(&k.name.as_str())).collect();
                    let last = match names.len() {
                        1 => uses.iter().position(|u| *u),
                        _ => None,
                    };
                    let met = |n: &i64| t.value(*n).is_some_and(|v| v != 0);
                    let last = last.map(|k| self.numbers[k].iter().map(met).collect());
                    self.terms.push(Residual { term: t.clone(), uses, last });
                    self.term_ids.insert(t, id);
                    id
                }
            },
        }
    }

    fn bind(&mut self, term: u32, knob: usize, value: usize) -> u32 {
        let residual = &self.terms[term as usize];
        if !residual.uses[knob] {
            return term;
        }
        if let Some(met) = &residual.last {
            return if met[value] { TRUE } else { FALSE };
        }
        let key = (term, knob as u16, value as u16);
        if let Some(&id) = self.bound.get(&key) {
            return id;
        }
        let t =
            self.terms[term as usize].term.bind(&self.knobs[knob].name, self.numbers[knob][value]);
        let id = self.intern(t);
        self.bound.insert(key, id);
        id
    }

    /// The node for a state, or `None` if no configuration lies below it.
    fn node(&mut self, k: usize, state: Box<[u32]>) -> Result<Option<u32>, SpaceError> {
        if k == self.knobs.len() {
            return Ok(Some(LEAF));
        }
        let key = (k as u16, state);
        if let Some(&n) = self.memo.get(&key) {
            return Ok(n);
        }
        let mut edges = Vec::new();
        let mut count = 0u128;
        for value in 0..self.knobs[k].values.len() {
            let mut next: Vec<u32> = Vec::with_capacity(key.1.len());
            let mut dead = false;
            for &t in &key.1 {
                match self.bind(t, k, value) {
                    FALSE => {
                        dead = true;
                        break;
                    }
                    TRUE => {}
                    id => next.push(id),
                }
            }
            if dead {
                continue;
            }
            next.sort_unstable();
            next.dedup();
            if let Some(child) = self.node(k + 1, next.into())? {
                edges.push(Edge { value: value as u16, child, before: count });
                count = count.saturating_add(self.diagram.count_at(child));
            }
        }
        let result = if edges.is_empty() {
            None
        } else {
            if self.diagram.nodes.len() >= MAX_NODES {
                return Err(SpaceError::TooEntangled);
            }
            let first = self.diagram.edges.len() as u32;
            self.diagram.nodes.push(Node { first, len: edges.len() as u16, count });
            self.diagram.edges.extend(edges);
            Some(self.diagram.nodes.len() as u32 - 1)
        };
        self.memo.insert(key, result);
        Ok(result)
    }
}
