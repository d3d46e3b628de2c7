//! Prints and parses the text of a plan (a network as steps over blocks of memory). `b2+64` is the
//! place 64 elements into block 2, `c3` is constant 3; a copy has the target, the source, an offset
//! and `[extent:target stride:source stride]` for each axis. Constants are printed by name; their
//! numbers stay with the weights.
//!
//! ```text
//! plan
//! constant f32 108 "\"w\""
//! block f32 192
//! block f32 256
//! input b0+0 192
//! step "conv" "Conv" kernel 0123456789abcdef b1+0 b0+0 c0
//! step "cat" "Concat" copy b1+0 b0+0 0 [4:8:4] [4:1:1]
//! step "pick" "Gather" if b3+0 unless b4+0 plain b1+0 c1 to b2+0
//! output b1+0 256
//! ```

use super::{
    Block, BlockPlace, BoundedOutput, PlainCall, Plan, PlanConstant, PlanStep, Stride, ValueSource,
    When, Work,
};
use squall_core::DType;
use squall_core::graph::words::{Words, at_end, lines, quote};
use squall_core::text::TextError;
use std::fmt::{self, Write as _};
use std::str::FromStr;

impl fmt::Display for BlockPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}+{}", self.block, self.offset)
    }
}

impl FromStr for BlockPlace {
    type Err = ();
    fn from_str(s: &str) -> Result<BlockPlace, ()> {
        let (block, offset) = s.strip_prefix('b').and_then(|s| s.split_once('+')).ok_or(())?;
        let (block, offset) = (block.parse().map_err(|_| ())?, offset.parse().map_err(|_| ())?);
        Ok(BlockPlace { block, offset })
    }
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::Constant(c) => write!(f, "c{c}"),
            ValueSource::Block(p) => write!(f, "{p}"),
        }
    }
}

impl FromStr for ValueSource {
    type Err = ();
    fn from_str(s: &str) -> Result<ValueSource, ()> {
        match s.strip_prefix('c') {
            Some(c) => c.parse().map(ValueSource::Constant).map_err(|_| ()),
            None => s.parse().map(ValueSource::Block),
        }
    }
}

impl fmt::Display for Stride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}:{}:{}]", self.extent, self.to, self.from)
    }
}

impl FromStr for Stride {
    type Err = ();
    fn from_str(s: &str) -> Result<Stride, ()> {
        let inner = s.strip_prefix('[').and_then(|s| s.strip_suffix(']')).ok_or(())?;
        let parts: Vec<&str> = inner.split(':').collect();
        let [extent, to, from] = parts[..] else { return Err(()) };
        let fail = |_| ();
        Ok(Stride {
            extent: extent.parse().map_err(fail)?,
            to: to.parse().map_err(fail)?,
            from: from.parse().map_err(fail)?,
        })
    }
}

/// One run of a copy without a pattern.
struct Run([usize; 3]);

impl FromStr for Run {
    type Err = ();
    fn from_str(s: &str) -> Result<Run, ()> {
        let numbers: Result<Vec<usize>, _> = s.split(':').map(str::parse).collect();
        numbers.map_err(|_| ())?.try_into().map(Run).map_err(|_| ())
    }
}

fn listed<T: fmt::Display>(list: &[T]) -> String {
    list.iter().fold(String::new(), |mut s, x| {
        let _ = write!(s, " {x}");
        s
    })
}

/// Prints optional items, with `-` for an absent one.
fn maybe<T: fmt::Display>(list: &[Option<T>]) -> String {
    list.iter().fold(String::new(), |mut s, x| {
        let _ = match x {
            Some(x) => write!(s, " {x}"),
            None => write!(s, " -"),
        };
        s
    })
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan")?;
        for c in &self.constants {
            writeln!(f, "constant {} {} {}", c.dtype.name(), c.elements, quote(&c.name))?;
        }
        for b in &self.blocks {
            writeln!(f, "block {} {}", b.dtype.name(), b.elements)?;
        }
        for (p, n) in self.inputs.iter().zip(&self.input_elements) {
            writeln!(f, "input {p} {n}")?;
        }
        for s in &self.steps {
            write!(f, "step {} {} ", quote(&s.node), quote(&s.op))?;
            for w in &s.when {
                write!(f, "{} {} ", if w.is { "if" } else { "unless" }, w.flag)?;
            }
            match &s.work {
                Work::Kernel { task, inputs, output } => {
                    writeln!(f, "kernel {task} {output}{}", listed(inputs))?;
                }
                Work::Copy { from, from_offset, to, axes } => {
                    writeln!(f, "copy {to} {from} {from_offset}{}", listed(axes))?;
                }
                Work::Runs { from, to, runs } => {
                    write!(f, "runs {to} {from}")?;
                    runs.iter().try_for_each(|[t, s, n]| write!(f, " {t}:{s}:{n}"))?;
                    writeln!(f)?;
                }
                Work::Fill { to, elements, value } => {
                    writeln!(f, "fill {to} {elements} {value:?}")?;
                }
                Work::Plain { inputs, outputs, extents, .. } => {
                    write!(f, "plain{} to{}", maybe(inputs), maybe(outputs))?;
                    extents.map_or(Ok(()), |p| write!(f, " extents {p}"))?;
                    writeln!(f)?;
                }
            }
        }
        for (p, n) in self.outputs.iter().zip(&self.output_elements) {
            writeln!(f, "output {p} {n}")?;
        }
        for b in &self.bounded {
            writeln!(f, "bounded {} {} {} {}", b.output, b.extents, b.before, b.rank)?;
        }
        self.random.iter().try_for_each(|name| writeln!(f, "random {}", quote(name)))
    }
}

impl Plan {
    /// Reads a plan's text, and checks it. Its constants have no numbers.
    pub fn parse(text: &str) -> Result<Plan, TextError> {
        let (mut plan, mut begun) = (Plan::default(), false);
        for mut w in lines(text) {
            if begun {
                line(&mut w, &mut plan)?;
            } else {
                w.expect("plan")?;
                begun = true;
            }
            w.end()?;
        }
        if !begun {
            return at_end(text, "expected `plan`");
        }
        match plan.verify() {
            Ok(()) => Ok(plan),
            Err(e) => at_end(text, e),
        }
    }
}

const PLACE: &str = "a place like b0+16";
const SOURCE: &str = "a place like b0+16 or a constant like c3";

/// Reads a type's name.
fn dtype(w: &mut Words<'_>) -> Result<DType, TextError> {
    let start = w.clone();
    let name = w.bare()?;
    match DType::ALL.into_iter().find(|d| d.name() == name) {
        Some(dtype) => Ok(dtype),
        None => start.error("expected a type like f32"),
    }
}

/// Reads what may be absent, up to the end or a word.
fn until<T: FromStr>(
    w: &mut Words<'_>,
    end: Option<&str>,
    what: &str,
) -> Result<Vec<Option<T>>, TextError> {
    let mut list = Vec::new();
    while !w.is_done() && w.peek() != end {
        list.push(if w.accept("-") { None } else { Some(w.value(what)?) });
    }
    Ok(list)
}

fn line(w: &mut Words<'_>, plan: &mut Plan) -> Result<(), TextError> {
    let start = w.clone();
    match w.bare()? {
        "constant" => {
            let (dtype, elements) = (dtype(w)?, w.value("a number of elements")?);
            let name = w.quoted()?;
            plan.constants.push(PlanConstant {
                name,
                dtype,
                elements,
                data: Vec::new(),
                place: None,
            });
        }
        "block" => {
            let (dtype, elements) = (dtype(w)?, w.value("a number of elements")?);
            plan.blocks.push(Block { dtype, elements });
        }
        "input" => {
            plan.inputs.push(w.value(PLACE)?);
            plan.input_elements.push(w.value("a number of elements")?);
        }
        "output" => {
            plan.outputs.push(w.value(PLACE)?);
            plan.output_elements.push(w.value("a number of elements")?);
        }
        "bounded" => plan.bounded.push(BoundedOutput {
            output: w.value("an output's number")?,
            extents: w.value(PLACE)?,
            before: w.value("a number of extents")?,
            rank: w.value("a number of extents")?,
        }),
        "random" => plan.random.push(w.quoted()?),
        "step" => {
            let (node, op) = (w.quoted()?, w.quoted()?);
            let when = conditions(w)?;
            plan.steps.push(PlanStep { node, op, when, work: work(w)? });
        }
        other => return start.error(format!("`{other}` is nothing that a plan has")),
    }
    Ok(())
}

fn conditions(w: &mut Words<'_>) -> Result<Vec<When>, TextError> {
    let mut list = Vec::new();
    loop {
        let is = match w.peek() {
            Some("if") => true,
            Some("unless") => false,
            _ => return Ok(list),
        };
        w.bare()?;
        list.push(When { flag: w.value(SOURCE)?, is });
    }
}

fn work(w: &mut Words<'_>) -> Result<Work, TextError> {
    let start = w.clone();
    Ok(match w.bare()? {
        "kernel" => {
            let (task, output) = (w.value("a task's id")?, w.value(PLACE)?);
            Work::Kernel { task, output, inputs: w.values(SOURCE)? }
        }
        "copy" => {
            let (to, from) = (w.value(PLACE)?, w.value(SOURCE)?);
            let from_offset = w.value("a number of elements")?;
            Work::Copy { from, from_offset, to, axes: w.values("an axis like [4:8:1]")? }
        }
        "runs" => {
            let (to, from) = (w.value(PLACE)?, w.value(SOURCE)?);
            let runs: Vec<Run> = w.values("a run like 0:8:4")?;
            Work::Runs { from, to, runs: runs.into_iter().map(|r| r.0).collect() }
        }
        "fill" => {
            let (to, elements) = (w.value(PLACE)?, w.value("a number of elements")?);
            Work::Fill { to, elements, value: w.value("a number")? }
        }
        "plain" => {
            let inputs = until(w, Some("to"), SOURCE)?;
            w.expect("to")?;
            let outputs = until(w, Some("extents"), PLACE)?;
            let extents = if w.accept("extents") { Some(w.value(PLACE)?) } else { None };
            Work::Plain { call: PlainCall::default(), inputs, outputs, extents }
        }
        _ => return start.error("expected `kernel`, `copy`, `runs`, `fill` or `plain`"),
    })
}
