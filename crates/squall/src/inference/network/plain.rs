//! Plain operators of a network: nodes without a tuned kernel, for each of which the compiler
//! generates a C function at the node's constant shapes (`compiler/src/plain`). Input: a plan;
//! output: [`PlainOperators`], the distinct functions and which step calls which. Equal calls share
//! one function.

use squall_compiler::plain::{self, PlainPart, PlainSource};
use squall_core::graph::{CallOperand, OperatorCall};
use squall_core::{Bytes, KernelSource, Language};
use squall_graph::plan::{Plan, PlanStep, ValueSource, Work};
use std::collections::HashMap;
use std::fmt::Write as _;

/// A fixed symbol, with which a text is made to be hashed.
const NAMELESS: &str = "squall_plain";

/// When plain operators pack constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Once, when the network is opened, by the program that then reads them.
    Ahead,
    /// In each call: sources that are exported may be compiled anew for other processors, whose
    /// vectors want constants in another order.
    InCalls,
}

/// The plain operators of a plan.
#[derive(Clone, Debug, Default)]
pub struct PlainOperators {
    /// The distinct functions, as kernels.
    pub sources: Vec<KernelSource>,
    /// For each source the first node that calls it and the call that it was generated from; empty
    /// on a GPU.
    pub calls: Vec<(String, OperatorCall)>,
    /// The index in `sources` of the function that a step of the plan calls.
    pub of_step: HashMap<usize, usize>,
    /// Whether they run on a GPU.
    pub on_device: bool,
    /// The functions that each of `sources` calls; none on a GPU.
    pub parts: Vec<Vec<KernelSource>>,
    /// The operands, all of them constants, that each of `sources` packs when the network is
    /// opened, in place of reading them in calls; none on a GPU.
    pub weights: Vec<Vec<usize>>,
}

impl PlainOperators {
    /// All functions: those that steps call, and those that these call.
    pub fn functions(&self) -> impl Iterator<Item = &KernelSource> {
        self.sources.iter().chain(self.parts.iter().flatten())
    }

    /// The operands that a function packs ahead of all calls.
    pub fn weights_of(&self, source: usize) -> &[usize] {
        self.weights.get(source).map_or(&[], Vec::as_slice)
    }

    /// How many of a step's conditions its generated kernel reads as the first of its data: on a
    /// GPU all of a plain operator, which then has no fault where it need not run. Elsewhere steps
    /// are left out.
    pub fn conditions_of(&self, step: &PlanStep) -> usize {
        let reads = self.on_device && matches!(step.work, Work::Plain { .. });
        if reads { step.when.len() } else { 0 }
    }

    /// Generates all of a plan's, for several threads or for one, to be compiled with these flags;
    /// says which has none, and why.
    pub fn of(
        plan: &Plan,
        on_threads: bool,
        flags: &[String],
        packing: Packing,
    ) -> Result<PlainOperators, String> {
        let mut all = PlainOperators::default();
        let mut known: HashMap<String, usize> = HashMap::new();
        for (i, step) in plan.steps.iter().enumerate() {
            let Work::Plain { call, inputs, .. } = &step.work else { continue };
            let is_constant = |s: &Option<ValueSource>| matches!(s, Some(ValueSource::Constant(_)));
            let is_packed = |s| packing == Packing::Ahead && is_constant(s);
            let fixed: Vec<bool> = inputs.iter().map(is_packed).collect();
            let at = |why: String| format!("node `{}` ({}): {why}", step.node, step.op);
            let call = call.0.as_ref().ok_or_else(|| at("its call is not known".into()))?;
            let made = text(call, &fixed, NAMELESS).map_err(at)?;
            let parts = made.parts.iter().map(|p| p.text.as_str());
            let text = std::iter::once(made.text.as_str()).chain(parts).collect::<String>();
            // What a text does not name, as CastLike's second operand, is of a call all the same.
            let key = format!("{}\n{text}", parameters(call));
            let symbol = format!("plain_{}", &blake3::hash(key.as_bytes()).to_hex()[..16]);
            let index = match known.get(&symbol) {
                Some(&index) => index,
                None => {
                    let made = self::text(call, &fixed, &symbol).map_err(at)?;
                    let part = |p: PlainPart| KernelSource {
                        language: Language::C,
                        source: p.text,
                        symbol: p.symbol,
                        prepared: Bytes(0),
                        workspace: Bytes(0),
                        openmp: on_threads && p.shares_loops,
                        full_optimisation: true,
                        flags: flags.to_vec(),
                        launches: Vec::new(),
                    };
                    all.parts.push(made.parts.into_iter().map(part).collect());
                    all.sources.push(KernelSource {
                        language: Language::C,
                        source: made.text,
                        symbol: symbol.clone(),
                        prepared: Bytes(made.prepared_bytes),
                        workspace: Bytes(made.scratch_bytes),
                        openmp: on_threads && made.shares_loops,
                        full_optimisation: true,
                        flags: flags.to_vec(),
                        launches: Vec::new(),
                    });
                    all.weights.push(made.weights);
                    all.calls.push((step.node.clone(), (**call).clone()));
                    known.insert(symbol, all.sources.len() - 1);
                    all.sources.len() - 1
                }
            };
            all.of_step.insert(i, index);
        }
        Ok(all)
    }
}

/// The types and sizes of what a call reads and writes.
pub(super) fn parameters(call: &OperatorCall) -> String {
    let one = |o: &Option<CallOperand>| {
        o.as_ref().map_or("-".into(), |o| format!("{} {:?}", o.dtype.name(), o.shape))
    };
    let list: Vec<String> = call.inputs.iter().chain(&call.outputs).map(one).collect();
    list.join(", ")
}

/// The function of a call as a kernel; `fixed` says which operands are the same in all calls.
pub(super) fn text(
    call: &OperatorCall,
    fixed: &[bool],
    symbol: &str,
) -> Result<PlainSource, String> {
    let operator = format!("{symbol}_operator");
    let mut made = plain::source_over(call, fixed, &operator).map_err(|e| e.to_string())?;
    // A kernel is given what is there; the operator has a place for what is not.
    let pointers = |count: usize, is_there: &dyn Fn(usize) -> bool, from: &str| {
        let mut next = 0;
        let mut list: Vec<String> = Vec::new();
        for i in 0..count {
            if is_there(i) {
                list.push(format!("{from}[{next}]"));
                next += 1;
            } else {
                list.push("0".into());
            }
        }
        // A list of none is no C.
        if list.is_empty() { "0".into() } else { list.join(", ") }
    };
    let extents = usize::from(call.extents() > 0);
    let is_packed = |i: usize| made.weights.contains(&i);
    let is_data = |i: usize| call.inputs[i].is_some() && !is_packed(i);
    let mut ins = pointers(call.inputs.len(), &is_data, "data");
    let outs = pointers(
        call.outputs.len() + extents,
        &|i| call.outputs.get(i).is_none_or(Option::is_some),
        "outputs",
    );
    let mut text = String::new();
    if made.prepared_bytes > 0 {
        let weights = pointers(call.inputs.len(), &is_packed, "weights");
        let _ = write!(
            text,
            "\nint {symbol}_prepare(const void *const *weights, void *prepared) {{\n  const void \
             *in[] = {{{weights}}};\n  return {operator}_prepare(in, prepared);\n}}\n"
        );
        ins += ", prepared";
    }
    let _ = write!(
        text,
        "\nint {symbol}(const void *const *data, void *const *outputs, const void *prepared,\n    \
         void *workspace) {{\n  const void *in[] = {{{ins}}};\n  void *out[] = {{{outs}}};\n  \
         (void)data, (void)prepared;\n  return {operator}(in, out, workspace);\n}}\n"
    );
    made.text += &text;
    Ok(made)
}
