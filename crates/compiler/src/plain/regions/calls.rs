//! Nodes of a region (nodes with open extents as one C function, `mod.rs`) that become calls of
//! kernels. A kernel is generated at constant shapes, over a row of any length with its operands
//! broadcast before, or over fitted extents (`fit.rs`). Input: a node and what is known of its
//! operands; output: C lines of the region and the kernel as a separate translation unit.

use super::super::context::inferred;
use super::fit::{MORE_TRIALS, TRIALS, fit, fitted, number, numbers};
use super::steps::{Steps, steps};
use super::{Level, Writer, list};
use crate::plain::{PlainPart, cast, elementwise, source};
use squall_core::DType;
use squall_core::graph::infer;
use squall_core::graph::{
    Attribute, CallOperand, Constant, Node, OperatorCall, ValueId, is_bounded,
};
use squall_core::operators::{Row, operator};

/// The number of elements from which on threads share a kernel of a region.
const MANY_ELEMENTS: i64 = 1 << 15;

/// The extents of a node's operands.
type Shapes = Vec<Option<Vec<i64>>>;

/// An open extent of a call, one that only the run knows, and the C expressions that hold it.
struct Open {
    extent: i64,
    /// Expressions such as `(v + 3)->dims[1]`, all of which must have one value.
    places: Vec<String>,
}

/// A kernel that fits all trials of a node, and how it is called.
struct FittedRun<'a> {
    /// The node's call in each trial.
    calls: &'a [OperatorCall],
    /// The numbers of each extent that it reads in the trials.
    of: &'a [Vec<i64>],
    /// Whether the last of the extents is TopK's `k`.
    top_k: bool,
    /// The kernel's name.
    part: &'a str,
    /// The declaration of the extents.
    array: &'a str,
    /// The bytes of its scratch memory.
    scratch: &'a str,
}

impl Writer {
    /// The elements of a value, if it is a constant.
    pub(super) fn known(&self, level: &Level<'_>, id: ValueId) -> Option<&Constant> {
        self.known.get(&level.slot[id])
    }

    /// The call of a node whose operands have these shapes, with the elements that are known.
    fn call(
        opset: i64,
        level: &Level<'_>,
        n: &Node,
        shapes: &Shapes,
        constants: &[Option<Constant>],
    ) -> Result<OperatorCall, String> {
        let mut inputs = Vec::new();
        for ((id, shape), constant) in n.inputs.iter().zip(shapes).zip(constants) {
            inputs.push(match (id, shape) {
                (Some(id), Some(shape)) => Some(CallOperand {
                    dtype: level.dtype(*id)?,
                    shape: shape.clone(),
                    constant: constant.clone(),
                }),
                _ => None,
            });
        }
        let made = inferred(n, opset, &inputs)?;
        let count = n.outputs.iter().rposition(|o| level.is_used[*o]).map_or(1, |i| i + 1);
        let mut outputs = Vec::new();
        for (i, (id, o)) in n.outputs.iter().zip(&made).enumerate() {
            let dtype = o.dtype.map_or_else(|| level.dtype(*id), Ok)?;
            let made = CallOperand { dtype, shape: o.shape.clone(), constant: None };
            outputs.push((i < count).then_some(made));
        }
        Ok(OperatorCall {
            op: n.op.clone(),
            domain: n.domain.clone(),
            opset,
            attributes: n.attributes.clone(),
            inputs,
            outputs,
        })
    }

    fn constants(&self, level: &Level<'_>, n: &Node) -> Vec<Option<Constant>> {
        n.inputs.iter().map(|i| i.and_then(|id| self.known(level, id).cloned())).collect()
    }

    /// The symbol of a kernel with this text; equal ones are one.
    fn part(&mut self, text: String, shares_loops: bool) -> String {
        let same = |p: &PlainPart| text == p.text.replace(&p.symbol, "@PART");
        if let Some(p) = self.parts.iter().find(|p| same(p)) {
            return p.symbol.clone();
        }
        let symbol = format!("@SELF_p{}_", self.parts.len());
        let text = text.replace("@PART", &symbol);
        self.parts.push(PlainPart { symbol: symbol.clone(), text, shares_loops });
        symbol
    }

    /// A call of a kernel; the places of results have their memory.
    pub(super) fn run(
        &mut self,
        part: &str,
        ins: &[String],
        outs: &[String],
        more: &str,
        scratch: &str,
    ) {
        let of = |all: &[String]| if all.is_empty() { "0".into() } else { all.join(", ") };
        self.line(&format!(
            "  {{ {more} const void *in[] = {{{}}}; void *to[] = {{{}}};\n  if (v_room(room, \
             (size_t){scratch}) || {part}(in, to, 0, room->data)) goto failed; }}",
            of(ins),
            of(outs)
        ));
    }

    /// A node of which all extents are known.
    pub(super) fn constant_shapes(&mut self, level: &Level<'_>, n: &Node) -> Result<(), String> {
        let shapes = shapes(level, n)?;
        let call = Self::call(self.opset, level, n, &shapes, &self.constants(level, n))?;
        self.constant_call(level, n, &call)
    }

    fn constant_call(
        &mut self,
        level: &Level<'_>,
        n: &Node,
        call: &OperatorCall,
    ) -> Result<(), String> {
        let made = source(call, "@PART_operator").map_err(|e| e.what)?;
        let text = made.text
            + "\nint @PART(const void *const *data, void *const *outputs, const void \
               *prepared,\n    \
               void *workspace) {\n  (void)prepared;\n  return @PART_operator(data, outputs, \
               workspace);\n}\n";
        let elements: i64 =
            call.inputs.iter().flatten().map(|o| o.shape.iter().product::<i64>()).sum();
        let part = self.part(text, made.shares_loops && elements >= MANY_ELEMENTS);
        let mut outs = Vec::new();
        for (id, o) in n.outputs.iter().zip(&call.outputs) {
            let Some(o) = o else {
                outs.push("0".into());
                continue;
            };
            let v = level.v(*id);
            self.line(&format!(
                "  {{ const long d[] = {{{}}}; if (v_new({v}, {}, d, {})) goto failed; }}",
                list(&o.shape),
                o.shape.len(),
                level.size(*id)?
            ));
            outs.push(format!("{v}->data"));
        }
        let count = if is_bounded(&n.domain, &n.op) { call.extents() } else { 0 };
        if count > 0 {
            self.line(&format!("  {{ long long found[{count}];"));
            outs.resize(n.outputs.len(), "0".into());
            outs.push("found".into());
        }
        let ins = self.operands(level, n);
        self.run(&part, &ins, &outs, "", &format!("{}", made.scratch_bytes));
        if count > 0 {
            self.found(level, n, call);
        }
        Ok(())
    }

    /// Takes over the extents that a bounded operator found.
    fn found(&mut self, level: &Level<'_>, n: &Node, call: &OperatorCall) {
        let mut at = 0;
        for (id, o) in n.outputs.iter().zip(&call.outputs) {
            let Some(o) = o else { continue };
            let rank = o.shape.len();
            let taken: String = (0..rank).map(|k| format!("d[{k}] = found[{}];", at + k)).collect();
            self.line(&format!(
                "  {{ long d[{}]; {taken} if (v_dims({}, {rank}, d)) goto failed; }}",
                rank.max(1),
                level.v(*id)
            ));
            at += rank;
        }
        self.line("  }");
    }

    fn operands(&self, level: &Level<'_>, n: &Node) -> Vec<String> {
        let one = |i: &Option<ValueId>| i.map_or("0".into(), |id| format!("{}->data", level.v(id)));
        n.inputs.iter().map(one).collect()
    }

    /// A node of which only the run knows some extents.
    pub(super) fn open_shapes(&mut self, level: &Level<'_>, n: &Node) -> Result<(), String> {
        let is_each = |row: &Row| {
            elementwise::writes(row) || cast::OPS.iter().any(|(name, _)| *name == row.name)
        };
        if operator(&n.domain, &n.op).is_some_and(is_each) {
            return self.row(level, n);
        }
        self.fitted_call(level, n)
    }

    /// An elementwise node: its operands are broadcast, then it runs over one row.
    fn row(&mut self, level: &Level<'_>, n: &Node) -> Result<(), String> {
        if ["broadcast", "axis"].iter().any(|a| n.attributes.contains_key(*a)) {
            return Err("it broadcasts as operators did before opset 7".into());
        }
        let known = self.constants(level, n);
        let mut single = Vec::new();
        for id in n.inputs.iter() {
            // One of any rank is not known to be a single number.
            let extents = id.and_then(|id| level.model.values[id].shape.as_deref());
            single.push(extents.is_some_and(|e| e.iter().all(|n| *n == 1)));
        }
        let (dtype, opset) = (level.dtype(n.outputs[0])?, self.opset);
        let call = |k: usize| {
            let operand = |(i, id): (usize, &Option<ValueId>)| {
                let Some(id) = id else { return Ok(None) };
                let shape = if single[i] { Vec::new() } else { vec![number(k, 0)] };
                let constant =
                    known[i].clone().filter(|_| single[i]).map(|c| c.reshaped(Vec::new()));
                Ok(Some(CallOperand { dtype: level.dtype(*id)?, shape, constant }))
            };
            let inputs = n.inputs.iter().enumerate().map(operand);
            let result = CallOperand { dtype, shape: vec![number(k, 0)], constant: None };
            Ok(OperatorCall {
                op: n.op.clone(),
                domain: n.domain.clone(),
                opset,
                attributes: n.attributes.clone(),
                inputs: inputs.collect::<Result<_, String>>()?,
                outputs: vec![Some(result)],
            })
        };
        let made = fitted(&numbers(1, TRIALS), n.inputs.len(), &call)?;
        let part = self.part(made.text, false);
        let (to, size) = (level.v(n.outputs[0]), level.size(n.outputs[0])?);
        // The type of a second operand of CastLike counts alone.
        let shaping: Vec<ValueId> = match n.op.as_str() {
            "CastLike" => n.inputs.iter().take(1).flatten().copied().collect(),
            "Clip" => n.inputs.iter().take(1).flatten().copied().collect(),
            _ => n.inputs.iter().flatten().copied().collect(),
        };
        let all: Vec<String> = shaping.iter().map(|id| level.v(*id)).collect();
        self.line(&format!(
            "  {{ const squall_v *x[] = {{{}}}; if (v_broadcast({to}, {}, x, {size})) goto \
             failed; }}",
            all.join(", "),
            all.len()
        ));
        let mut ins = Vec::new();
        for (i, id) in n.inputs.iter().enumerate() {
            let Some(id) = id else {
                ins.push("0".into());
                continue;
            };
            let v = level.v(*id);
            if single[i] || !shaping.contains(id) {
                ins.push(format!("{v}->data"));
                continue;
            }
            let room = self.slots;
            self.slots += 1;
            self.line(&format!(
                "  const void *row{room} = v_spread(v + {room}, {v}, {to}, {});\n  if \
                 (!row{room} && \
                 {to}->count) goto failed;",
                level.size(*id)?
            ));
            ins.push(format!("row{room}"));
        }
        ins.push("e".into());
        let more = format!("const long e[] = {{{to}->count}}; (void)e;");
        // A declaration must not stand where `goto failed` jumps over it into its scope.
        self.run(&part, &ins, &[format!("{to}->data")], &more, &made.scratch);
        Ok(())
    }

    /// The kernel that reduces each row of a matrix to one number, and the memory that it needs.
    pub(super) fn rows(&mut self, op: &str, dtype: DType) -> Result<(String, String), String> {
        let attributes = [("axes", Attribute::Ints(vec![1])), ("keepdims", Attribute::Int(0))];
        let operand = |shape| Some(CallOperand { dtype, shape, constant: None });
        let call = |k: usize| {
            Ok(OperatorCall {
                op: op.into(),
                domain: String::new(),
                // Axes are an attribute.
                opset: 11,
                attributes: attributes.clone().map(|(n, a)| (n.to_string(), a)).into(),
                inputs: vec![operand(vec![number(k, 0), number(k, 1)])],
                outputs: vec![operand(vec![number(k, 0)])],
            })
        };
        let made = fitted(&numbers(2, TRIALS), 1, &call)?;
        Ok((self.part(made.text, false), made.scratch))
    }

    /// A node whose kernel is fitted to open extents.
    fn fitted_call(&mut self, level: &Level<'_>, n: &Node) -> Result<(), String> {
        let top = n.op == "TopK" && n.inputs.len() > 1;
        let mut partial = shapes(level, n)?;
        // The axis of TopK and its `k` are extents that its kernel reads.
        let mut k_of = None;
        if let (true, Some(Some(x)), Some(Some(k))) = (top, partial.first_mut(), n.inputs.get(1)) {
            let axis = infer::axis_of(n.int_or("axis", -1), x.len())?;
            x[axis] = i64::MIN;
            k_of = Some((axis, level.v(*k)));
        }
        let open = open_of(level, n, &partial, k_of.is_some());
        let constants = self.constants(level, n);
        let (first, opset) = (open.len(), self.opset);
        let called = |k: usize, classes: &[usize], number: &dyn Fn(usize) -> i64| {
            let one = |e: &i64| match open.iter().position(|o| o.extent == *e) {
                Some(s) => number(classes[s]),
                None => *e,
            };
            let all: Shapes =
                partial.iter().map(|s| Some(s.as_ref()?.iter().map(one).collect())).collect();
            let mut constants = constants.clone();
            if let Some(c) = constants.get_mut(1).filter(|_| k_of.is_some()) {
                let shape = partial[1].clone().unwrap_or_default();
                *c = Some(Constant::I64 { shape, data: vec![k_number(k)] });
            }
            Self::call(opset, level, n, &all, &constants)
        };
        let call = |k: usize, classes: &[usize]| called(k, classes, &|s| number(k, s));
        let mut why = String::new();
        for classes in partitions(first) {
            let count = classes.iter().max().map_or(0, |m| m + 1);
            let follow = match &k_of {
                None => {
                    let base = numbers(count, MORE_TRIALS);
                    let is_known = |seen: &[i64]| fit(seen, &base).is_some();
                    steps(count, &|n| called(0, &classes, n), &is_known, MORE_TRIALS)
                }
                Some(_) => Vec::new(),
            };
            let mut of = with_steps(count, &follow);
            let trials = of.first().map_or(TRIALS, Vec::len);
            // `k` is read from its own place: kernels are generated for several numbers of it.
            let made = match &k_of {
                None => fitted(&of, n.inputs.len(), &|k| call(k, &classes)),
                Some(_) => top_k(count, n.inputs.len(), &|k| call(k, &classes)),
            };
            let is_clear = |of: &[Vec<i64>]| (0..of.len()).all(|i| !of[..i].contains(&of[i]));
            let made = match made {
                Ok(made) if is_clear(&of) => made,
                other => {
                    let alike = || "numbers that follow from its extents look alike".to_string();
                    why = if why.is_empty() { other.err().unwrap_or_else(alike) } else { why };
                    continue;
                }
            };
            let calls = (0..trials).map(|k| call(k, &classes)).collect::<Result<Vec<_>, _>>()?;
            let part = self.part(made.text, false);
            let mut e = self.numbers_of(&open, &classes, &follow);
            if let Some((axis, v)) = &k_of {
                of.push((0..trials).map(k_number).collect());
                e.push(format!("(long)*(const long long *){v}->data"));
                let x = n.inputs[0].ok_or("its operand is missing")?;
                let kk = &e[count];
                self.does(&format!("{kk} < 0 || {kk} > {}->dims[{axis}]", level.v(x)));
            }
            let all = if e.is_empty() { "0".into() } else { e.join(", ") };
            let array = format!("const long e[] = {{{all}}}; (void)e;");
            let (calls, part, scratch) = (&calls, &part, &made.scratch);
            let (of, array, top_k) = (&of, &array, k_of.is_some());
            let run = FittedRun { calls, of, top_k, part, array, scratch };
            return self.fitted_run(level, n, &run);
        }
        Err(if why.is_empty() { "too many of its extents are open".into() } else { why })
    }

    /// The extents that a fitted kernel reads, as C; where some have to be equal, that is tested.
    fn numbers_of(&mut self, open: &[Open], classes: &[usize], follow: &[Steps]) -> Vec<String> {
        let count = classes.iter().max().map_or(0, |m| m + 1);
        let mut e: Vec<String> = Vec::new();
        for c in 0..count {
            let all = open.iter().zip(classes).filter(|(_, own)| **own == c);
            let all: Vec<&String> = all.flat_map(|(o, _)| &o.places).collect();
            for other in all.iter().skip(1).filter(|o| **o != all[0]) {
                self.does(&format!("{} != {other}", all[0]));
            }
            e.push(all[0].clone());
        }
        for f in follow {
            let n = e[f.of].clone();
            self.does(&format!("{n} < {}", f.least));
            let (rise, len, at) = (f.rise, f.at.len(), list(&f.at));
            e.push(format!("v_follow({n}, {rise}, {len}, (const long[]){{{at}}})"));
        }
        e
    }

    /// Gives the results of a fitted kernel their extents, and calls it.
    fn fitted_run(
        &mut self,
        level: &Level<'_>,
        n: &Node,
        run: &FittedRun<'_>,
    ) -> Result<(), String> {
        let FittedRun { calls, of, top_k, part, array, scratch } = *run;
        self.line(&format!("  {{ {array}"));
        let mut outs = Vec::new();
        for (i, id) in n.outputs.iter().enumerate() {
            let shapes: Option<Vec<&Vec<i64>>> =
                calls.iter().map(|c| c.outputs.get(i)?.as_ref().map(|o| &o.shape)).collect();
            let Some(shapes) = shapes else {
                outs.push("0".into());
                continue;
            };
            let mut dims = Vec::new();
            for d in 0..shapes[0].len() {
                let seen: Vec<i64> = shapes.iter().map(|s| s[d]).collect();
                let is_k = top_k && seen.iter().enumerate().all(|(k, n)| *n == k_number(k));
                dims.push(match is_k {
                    true => format!("e[{}]", of.len() - 1),
                    false => fit(&seen, of)
                        .ok_or("an extent of its result is no product of its operands'")?
                        .text("e"),
                });
            }
            let v = level.v(*id);
            self.line(&format!(
                "  {{ const long d[] = {{{}}}; if (v_new({v}, {}, d, {})) goto failed; }}",
                if dims.is_empty() { "0".into() } else { dims.join(", ") },
                dims.len(),
                level.size(*id)?
            ));
            outs.push(format!("{v}->data"));
        }
        let count = if is_bounded(&n.domain, &n.op) { calls[0].extents() } else { 0 };
        if count > 0 {
            self.line(&format!("  {{ long long found[{count}];"));
            outs.resize(n.outputs.len(), "0".into());
            outs.push("found".into());
        }
        let mut ins = self.operands(level, n);
        ins.push("e".into());
        self.run(part, &ins, &outs, "", scratch);
        if count > 0 {
            self.found(level, n, &calls[0]);
        }
        self.line("  }");
        Ok(())
    }
}

/// The trial numbers of open extents and of the extents that depend on them. Where some depend
/// there are more trials, so that no two of them agree in all trials.
fn with_steps(count: usize, follow: &[Steps]) -> Vec<Vec<i64>> {
    let trials = if follow.is_empty() { TRIALS } else { MORE_TRIALS };
    let mut of = numbers(count, trials);
    let own = |f: &Steps| (0..trials).map(|k| f.value(number(k, f.of))).collect::<Vec<i64>>();
    of.extend(follow.iter().map(own).collect::<Vec<_>>());
    of
}

/// The open extents of a call's operands, without those of the `k` of TopK.
fn open_of(level: &Level<'_>, n: &Node, partial: &Shapes, top: bool) -> Vec<Open> {
    let mut open: Vec<Open> = Vec::new();
    for (i, (id, shape)) in n.inputs.iter().zip(partial).enumerate() {
        let (Some(id), Some(shape)) = (id, shape) else { continue };
        for (d, &extent) in shape.iter().enumerate().filter(|(_, e)| **e < 0 && !(top && i == 1)) {
            let place = format!("{}->dims[{d}]", level.v(*id));
            match open.iter_mut().find(|o| o.extent == extent) {
                Some(o) => o.places.push(place),
                None => open.push(Open { extent, places: vec![place] }),
            }
        }
    }
    open
}

/// The numbers for which TopK is generated in the place of its `k`.
fn k_number(k: usize) -> i64 {
    [9, 17, 33, 29][k % TRIALS]
}

/// The kernel of TopK, whose `k` is the last of its extents.
fn top_k(
    symbols: usize,
    inputs: usize,
    call: &dyn Fn(usize) -> Result<OperatorCall, String>,
) -> Result<super::fit::Fitted, String> {
    // The texts with one `k` fit the extents; the macro of `k` alone differs between others.
    let fixed = |k: usize| {
        let mut made = call(k)?;
        let of = call(0)?;
        let own = |o: &mut CallOperand| {
            o.shape.iter_mut().for_each(|e| {
                if *e == k_number(k) {
                    *e = k_number(0);
                }
            });
        };
        made.inputs[1] = of.inputs[1].clone();
        made.outputs.iter_mut().flatten().for_each(own);
        Ok(made)
    };
    let mut made = fitted(&numbers(symbols, TRIALS), inputs, &fixed)?;
    let macro_of = format!("#define K {}L", k_number(0));
    if !made.text.contains(&macro_of) {
        return Err("its kernel does not read `k`".into());
    }
    made.text = made.text.replace(&macro_of, &format!("#define K (squall_e[{symbols}])"));
    made.scratch = format!("(8 * e[{symbols}] + 128)");
    Ok(made)
}

/// The ways in which `count` extents may be equal, those with the most different ones first.
fn partitions(count: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..count {
        let grown = |p: &Vec<usize>| {
            let next = p.iter().max().map_or(0, |m| m + 1);
            (0..=next).map(|c| [&p[..], &[c]].concat()).collect::<Vec<_>>()
        };
        all = match count <= 4 {
            true => all.iter().flat_map(grown).collect(),
            // Only all different, or all equal.
            false => return vec![(0..count).collect(), vec![0; count]],
        };
    }
    all.sort_by_key(|p| std::cmp::Reverse(p.iter().max().copied()));
    all
}

/// The extents of a node's operands as far as they are known.
fn shapes(level: &Level<'_>, n: &Node) -> Result<Shapes, String> {
    let one = |i: &Option<ValueId>| i.map(|id| level.extents(id).map(<[i64]>::to_vec)).transpose();
    n.inputs.iter().map(one).collect()
}

/// Whether a type is one of whole numbers of 32 or 64 bits.
pub(super) fn is_list(d: DType) -> bool {
    matches!(d, DType::I32 | DType::I64)
}
