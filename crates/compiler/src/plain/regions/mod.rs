//! Regions: nodes over values whose extents only the run knows, and loops (`Loop`), as one
//! C function. The function walks through the nodes as an interpreter would: each value has its
//! extents and memory that grows, each node is a call of a kernel of its own or of a routine of
//! `values.c`, and a loop is a loop.
//!
//! Input: a call of the operator `REGION`, whose attribute holds the nodes
//! (`core/src/graph/infer/region.rs` makes it); output: C. A node whose extents are all known is a
//! plain kernel at constant shapes; an elementwise node is a kernel over a row of any length, with
//! its operands broadcast before; other nodes are fitted (`fit.rs`). `nodes.rs` has nodes that are
//! routines, `calls.rs` nodes that are kernels.

mod calls;
mod fit;
mod nodes;
mod steps;

use super::program::Program;
use super::{Generator, PlainPart};
use squall_core::DType;
use squall_core::graph::demand::{self, Conditions};
use squall_core::graph::infer::is_choice;
use squall_core::graph::infer::region::{self, CARRIED, LOOP};
use squall_core::graph::{Attribute, Constant, Model, Node, ValueId};
use squall_core::text::shown;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

pub(super) const OPS: &[(&str, Generator)] = &[(region::REGION, generate)];

/// The C routines that regions call.
const VALUES: &str = include_str!("values.c");

/// The text of a region so far.
struct Writer {
    body: String,
    parts: Vec<PlainPart>,
    /// The number of values so far, each of which has a place in one array.
    slots: usize,
    /// The number of lists of integers so far.
    lists: usize,
    /// The elements of values that are constants.
    known: HashMap<usize, Constant>,
    opset: i64,
}

/// The nodes of a region or of a loop's body, with the places of their values in the array.
struct Level<'m> {
    model: &'m Model,
    slot: Vec<usize>,
    is_used: Vec<bool>,
    /// The values that nodes of this level make and that only one node reads.
    moves: HashSet<ValueId>,
}

impl Level<'_> {
    fn extents(&self, id: ValueId) -> Result<&[i64], String> {
        let v = &self.model.values[id];
        let shape = v.shape.as_deref().filter(|s| !region::is_unranked(s));
        shape.ok_or_else(|| format!("the rank of `{}` is not known", shown(&v.name)))
    }

    fn dtype(&self, id: ValueId) -> Result<DType, String> {
        let v = &self.model.values[id];
        v.dtype.ok_or_else(|| format!("the type of `{}` is not known", shown(&v.name)))
    }

    fn size(&self, id: ValueId) -> Result<u64, String> {
        let d = self.dtype(id)?;
        if d == DType::Tf32 {
            return Err(format!("elements of type {} are not supported here", d.name()));
        }
        Ok(d.bytes())
    }

    fn is_exact(&self, id: ValueId) -> bool {
        region::is_exact(self.model.values[id].shape.as_deref())
    }

    fn is_of_any_rank(&self, id: ValueId) -> bool {
        self.model.values[id].shape.as_deref().is_some_and(region::is_unranked)
    }

    /// Conditions as C.
    fn tests(&self, under: &Conditions) -> String {
        let is = |(flag, is): &(ValueId, bool)| {
            let not = if *is { "" } else { "!" };
            format!("{not}*(const unsigned char *){}->data", self.v(*flag))
        };
        let all: Vec<String> = under.iter().map(is).collect();
        if all.is_empty() { "1".into() } else { all.join(" && ") }
    }

    /// `v + 3`, the value's place.
    fn v(&self, id: ValueId) -> String {
        format!("(v + {})", self.slot[id])
    }
}

/// Whole numbers as the text of a list in C.
fn list(values: &[i64]) -> String {
    let all: Vec<String> = values.iter().map(|v| super::program::long(*v)).collect();
    if all.is_empty() { "0L".into() } else { all.join(", ") }
}

fn generate(p: &mut Program) -> Result<(), String> {
    let node = p.ctx.node;
    let model = region::body(node).ok_or("it has no body")?;
    let grown = region::grown(node);
    let mut w = Writer {
        body: String::new(),
        parts: Vec::new(),
        slots: 0,
        lists: 0,
        known: HashMap::new(),
        opset: model.opset,
    };
    let level = w.level(model, &[]);
    for (k, &id) in model.inputs.iter().enumerate() {
        let dims = list(level.extents(id)?);
        let rank = level.extents(id)?.len();
        let _ = writeln!(
            w.body,
            "  v_borrow({v}, in[{k}]);\n  {{ const long d[] = {{{dims}}}; if (v_dims({v}, {rank}, \
             d)) goto failed; }}",
            v = level.v(id)
        );
        if let Some(c) = p.ctx.operand(k).and_then(|o| o.constant) {
            w.known.insert(level.slot[id], c.clone());
        }
    }
    w.nodes(&level, node, true)?;
    for (k, (id, under)) in demand::results(node, model).into_iter().enumerate() {
        // A result that nothing reads has no place: what read it was folded.
        if p.result(k).is_none() {
            continue;
        }
        let (v, size) = (level.v(id), level.size(id)?);
        w.line(&format!("  if ({}) {{", level.tests(&under)));
        let _ = match grown.get(k) {
            Some(Some(_)) => writeln!(w.body, "  if (v_give({v}, out[{k}], {size})) goto failed;"),
            _ => writeln!(
                w.body,
                "  if ({v}->count) memcpy(out[{k}], {v}->data, (size_t){v}->count * {size});"
            ),
        };
        w.line("  }");
    }
    p.table("squall_v", VALUES.into());
    // The prototypes of its kernels, in front of the function.
    let prototypes: String = w
        .parts
        .iter()
        .map(|part| {
            format!(
                "int {}(const void *const *, void *const *, const void *, void *);\n",
                part.symbol
            )
        })
        .collect();
    p.table("squall_parts", format!("{prototypes}typedef int squall_parts;\n"));
    p.body(&format!(
        "  squall_parts failed = 1;\n  squall_v *v = calloc({n}, sizeof *v), *room = calloc(1, \
         sizeof *room);\n  squall_list *lists = calloc({l}, sizeof *lists);\n  if (!v || !room || \
         !lists) goto failed;\n{}  failed = 0;\nfailed:\n  for (long i = 0; v && i < {n}; i++) \
         v_drop(v + i);\n  if (room) v_drop(room);\n  free(v), free(room), free(lists);\n  if \
         (failed) return 1;\n",
        w.body,
        n = w.slots.max(1),
        l = w.lists.max(1)
    ));
    p.parts = w.parts;
    Ok(())
}

impl Writer {
    /// Gives places to all values of some nodes; `given` holds the places of inputs that have some
    /// already.
    fn level<'m>(&mut self, model: &'m Model, given: &[Option<usize>]) -> Level<'m> {
        let mut slot = vec![usize::MAX; model.values.len()];
        for (&id, place) in model.inputs.iter().zip(given) {
            slot[id] = place.unwrap_or(usize::MAX);
        }
        for s in slot.iter_mut().filter(|s| **s == usize::MAX) {
            *s = self.slots;
            self.slots += 1;
        }
        let mut is_used = vec![false; model.values.len()];
        let read = model.nodes.iter().flat_map(|n| n.inputs.iter().flatten());
        read.chain(&model.outputs).for_each(|id| is_used[*id] = true);
        let read = model.nodes.iter().flat_map(|n| n.inputs.iter().flatten());
        let mut readers = vec![0; model.values.len()];
        read.chain(&model.outputs).for_each(|id| readers[*id] += 1);
        let made = model.nodes.iter().flat_map(|n| &n.outputs).copied();
        let moves = made.filter(|id| readers[*id] == 1).collect();
        Level { model, slot, is_used, moves }
    }

    fn line(&mut self, text: &str) {
        self.body += text;
        self.body.push('\n');
    }

    /// A call that may fail.
    fn does(&mut self, text: &str) {
        self.line(&format!("  if ({text}) goto failed;"));
    }

    /// Writes nodes. `once` says that they run once, so that memory can be let go behind them.
    fn nodes(&mut self, level: &Level<'_>, of: &Node, once: bool) -> Result<(), String> {
        let model = level.model;
        let mut last: HashMap<ValueId, usize> = HashMap::new();
        for (i, n) in model.nodes.iter().enumerate() {
            n.inputs.iter().flatten().chain(&n.outputs).for_each(|id| _ = last.insert(*id, i));
        }
        let conditions = demand::of_body(of, model);
        // A boolean that says whether something runs is read there, too.
        for (i, under) in conditions.iter().enumerate() {
            for (flag, _) in under.iter().flatten() {
                let at = last.entry(*flag).or_insert(i);
                *at = (*at).max(i);
            }
        }
        let kept = demand::results(of, model);
        let kept: HashSet<ValueId> =
            kept.iter().flat_map(|r| r.1.iter().map(|f| f.0).chain([r.0])).collect();
        for (i, (n, under)) in model.nodes.iter().zip(conditions).enumerate() {
            // No node needs the value, or the run decides whether one does.
            let Some(under) = under else { continue };
            if !under.is_empty() {
                self.line(&format!("  if ({}) {{", level.tests(&under)));
            }
            self.node(level, n)
                .map_err(|e| format!("node `{}` ({}): {e}", shown(&n.name), n.op))?;
            for &o in n.outputs.iter().filter(|o| level.is_used[**o] && level.is_exact(**o)) {
                let extents = level.extents(o)?;
                let text = format!(
                    "  {{ const long d[] = {{{}}}; if (!v_is({}, {}, d)) goto failed; }}",
                    list(extents),
                    level.v(o),
                    extents.len()
                );
                self.line(&text);
            }
            if !under.is_empty() {
                self.line("  }");
            }
            let over = last.iter().filter(|(id, at)| **at == i && !kept.contains(id));
            let mut over: Vec<ValueId> = over.map(|(id, _)| *id).collect();
            over.sort_unstable();
            for id in over.into_iter().filter(|_| once) {
                self.line(&format!("  v_drop({});", level.v(id)));
            }
        }
        Ok(())
    }

    /// Writes a loop: its body's nodes once, in a C loop; carried values swap places after each
    /// iteration.
    fn turns(&mut self, level: &Level<'_>, n: &Node) -> Result<(), String> {
        let body = region::body(n).ok_or("it has no body")?;
        let carried = match n.attributes.get(CARRIED) {
            Some(Attribute::Int(c)) if *c >= 0 => *c as usize,
            _ => return Err("attribute `carried` is missing".into()),
        };
        let operand = |i: usize| n.inputs.get(i).copied().flatten();
        let around = (2 + carried..n.inputs.len()).map(|i| operand(i).map(|id| level.slot[id]));
        let given: Vec<Option<usize>> = vec![None; 2 + carried].into_iter().chain(around).collect();
        if given.len() != body.inputs.len() || body.outputs.len() < 1 + carried {
            return Err("its body does not suit its operands".into());
        }
        let inner = self.level(body, &given);
        let name = self.slots;
        // Results that are copied before they are carried on.
        let spare = self.slots;
        self.slots += carried;
        for i in 0..carried {
            let from = operand(2 + i).ok_or("a carried value is missing")?;
            let to = inner.v(body.inputs[2 + i]);
            self.does(&format!("v_copy({to}, {}, {})", level.v(from), level.size(from)?));
        }
        let sums: Vec<ValueId> = n.outputs.iter().skip(carried).copied().collect();
        for (k, &o) in sums.iter().enumerate() {
            let part = body.outputs[1 + carried + k];
            // The part that each iteration adds has a known rank.
            let dims = inner.extents(part)?.iter().map(|e| (*e).max(0)).collect::<Vec<_>>();
            let dims: Vec<i64> = std::iter::once(0).chain(dims).collect();
            self.line(&format!(
                "  {{ const long d[] = {{{}}}; if (v_new({}, {}, d, 1)) goto failed; }}",
                list(&dims),
                level.v(o),
                dims.len()
            ));
        }
        let limit = match operand(0) {
            Some(id) => format!("*(const long long *){}->data", level.v(id)),
            None => "9223372036854775807LL".into(),
        };
        let first = match operand(1) {
            Some(id) => format!("*(const char *){}->data", level.v(id)),
            None => "1".into(),
        };
        let (number, goes) = (inner.v(body.inputs[0]), inner.v(body.inputs[1]));
        self.line(&format!(
            "  {{\n  const long long limit{name} = {limit};\n  long long turn{name} = 0;\n  char \
             goes{name} = {first} != 0;\n  v_borrow({number}, &turn{name}), v_borrow({goes}, \
             &goes{name});\n  if (v_dims({number}, 0, 0) || v_dims({goes}, 0, 0)) goto failed;\n  \
             for (; goes{name} && turn{name} < limit{name}; turn{name}++) {{"
        ));
        self.nodes(&inner, n, false)?;
        for (k, &o) in sums.iter().enumerate().filter(|(_, o)| level.is_used[**o]) {
            let part = body.outputs[1 + carried + k];
            self.does(&format!(
                "v_append({}, {}, {})",
                level.v(o),
                inner.v(part),
                inner.size(part)?
            ));
        }
        self.line(&format!(
            "  const char next{name} = *(const char *){}->data != 0;",
            inner.v(body.outputs[0])
        ));
        self.carry(&inner, carried, spare)?;
        self.line(&format!("  goes{name} = next{name};\n  }}\n  }}"));
        for (i, &o) in n.outputs.iter().take(carried).enumerate() {
            self.line(&format!("  v_swap({}, {});", level.v(o), inner.v(body.inputs[2 + i])));
        }
        Ok(())
    }

    /// The end of a turn: what only a carried value is made for changes places with it, other
    /// results are copied first.
    fn carry(&mut self, inner: &Level<'_>, carried: usize, spare: usize) -> Result<(), String> {
        let body = inner.model;
        let made: Vec<ValueId> = body.nodes.iter().flat_map(|n| &n.outputs).copied().collect();
        let results = &body.outputs[1..=carried];
        let moves =
            |id: &ValueId| made.contains(id) && results.iter().filter(|r| *r == id).count() == 1;
        for (i, id) in results.iter().enumerate().filter(|(_, id)| !moves(id)) {
            self.does(&format!(
                "v_copy(v + {}, {}, {})",
                spare + i,
                inner.v(*id),
                inner.size(*id)?
            ));
        }
        for (i, id) in results.iter().enumerate() {
            let from = if moves(id) { inner.v(*id) } else { format!("v + {}", spare + i) };
            self.line(&format!("  v_swap({}, {from});", inner.v(body.inputs[2 + i])));
        }
        Ok(())
    }

    /// A conversion to floats of 16 bits or from them, as far as a node is one.
    fn halves(&mut self, level: &Level<'_>, n: &Node) -> Result<bool, String> {
        let [Some(x)] = n.inputs[..] else { return Ok(false) };
        let [from, to] = [level.dtype(x)?, level.dtype(n.outputs[0])?];
        let kind = |d: DType| i32::from(d == DType::Bf16);
        let (v, out) = (level.v(x), level.v(n.outputs[0]));
        if n.op != "Cast" || !from.is_half() && !to.is_half() {
            return Ok(false);
        }
        match (from, to) {
            (DType::F32, _) => self.does(&format!("v_narrow({out}, {v}, {})", kind(to))),
            (_, DType::F32) => self.does(&format!("v_widen({out}, {v}, {})", kind(from))),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// One of two values; one that nothing else reads changes places with the result.
    fn chosen(&mut self, level: &Level<'_>, n: &Node) -> Result<(), String> {
        let [Some(flag), Some(yes), Some(no)] = n.inputs[..] else {
            return Err("an operand is missing".into());
        };
        let (to, size) = (level.v(n.outputs[0]), level.size(n.outputs[0])?);
        let hand = |id: ValueId| match level.moves.contains(&id) {
            true => format!("v_swap({to}, {});", level.v(id)),
            false => format!("if (v_copy({to}, {}, {size})) goto failed;", level.v(id)),
        };
        self.line(&format!(
            "  if (*(const unsigned char *){}->data) {{ {} }} else {{ {} }}",
            level.v(flag),
            hand(yes),
            hand(no)
        ));
        Ok(())
    }

    fn node(&mut self, level: &Level<'_>, n: &Node) -> Result<(), String> {
        if let Some(problem) = &n.problem {
            return Err(problem.clone());
        }
        for &o in n.outputs.iter().filter(|o| level.is_used[**o]) {
            level.size(o)?;
        }
        if region::body(n).is_some() && n.op == LOOP {
            return self.turns(level, n);
        }
        if is_choice(n) {
            return self.chosen(level, n);
        }
        if self.halves(level, n)? {
            return Ok(());
        }
        let mut all = n.inputs.iter().flatten().chain(&n.outputs);
        let is_exact = all.all(|id| level.is_exact(*id));
        if is_exact && super::has(&n.domain, &n.op) {
            return self.constant_shapes(level, n);
        }
        if self.routine(level, n)? {
            return Ok(());
        }
        self.open_shapes(level, n).map_err(|why| {
            let is_open = |id: &&ValueId| !level.is_exact(**id);
            let of =
                n.inputs.iter().flatten().find(is_open).map(|id| &level.model.values[*id].name);
            match of {
                Some(of) => format!("only the run knows the length of its input `{of}`, and {why}"),
                None => why,
            }
        })
    }
}
