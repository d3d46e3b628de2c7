//! Checks a plan (a network as steps over blocks of memory): all that is read and written lies
//! inside its block, nothing is read before a step, input or constant gave it, and conditions are
//! booleans. Input: a plan, just built, rewritten or parsed; output: nothing, or the step that is
//! wrong and why.

use super::{BlockPlace, Plan, Stride, ValueSource, Work};
use squall_core::DType;

impl Plan {
    /// Checks the plan; the error says which step is wrong and why. How much a kernel reads of a
    /// block is its task's affair: only the start of the place is checked here.
    pub fn verify(&self) -> Result<(), String> {
        let ends = self.inputs.iter().zip(&self.input_elements);
        if self.inputs.len() != self.input_elements.len()
            || self.outputs.len() != self.output_elements.len()
        {
            return Err("an input or an output has no size".into());
        }
        let mut written = vec![false; self.blocks.len()];
        for (i, (p, &n)) in ends.enumerate() {
            self.inside(p, n).map_err(|e| format!("input {i}: {e}"))?;
            written[p.block] = true;
        }
        for (i, step) in self.steps.iter().enumerate() {
            let at = |e: String| format!("step {i} (`{}`): {e}", step.node);
            for source in step.reads() {
                self.known(&source, &written).map_err(at)?;
            }
            step.when.iter().try_for_each(|w| self.is_flag(&w.flag)).map_err(at)?;
            self.sizes(&step.work).map_err(at)?;
            step.work.writes().iter().for_each(|p| written[p.block] = true);
        }
        for b in &self.bounded {
            self.known(&ValueSource::Block(b.extents), &written)
                .and_then(|()| self.inside(&b.extents, b.before.saturating_add(b.rank)))
                .map_err(|e| format!("the extents of output {}: {e}", b.output))?;
            if b.output >= self.outputs.len() || self.blocks[b.extents.block].dtype != DType::I64 {
                return Err(format!("the extents of output {} are none", b.output));
            }
        }
        for (i, (p, &n)) in self.outputs.iter().zip(&self.output_elements).enumerate() {
            self.inside(p, n).map_err(|e| format!("output {i}: {e}"))?;
            self.known(&ValueSource::Block(*p), &written)
                .map_err(|e| format!("output {i}: {e}"))?;
        }
        Ok(())
    }

    /// Checks that `elements` elements from a place on lie inside its block.
    fn inside(&self, p: &BlockPlace, elements: usize) -> Result<(), String> {
        match (self.blocks.get(p.block), p.offset.checked_add(elements)) {
            (None, _) => Err(format!("there is no block {}", p.block)),
            (Some(block), Some(end)) if end <= block.elements => Ok(()),
            (Some(block), _) => Err(format!(
                "{elements} elements from {} on do not fit block {} of {}",
                p.offset, p.block, block.elements
            )),
        }
    }

    fn known(&self, source: &ValueSource, written: &[bool]) -> Result<(), String> {
        match source {
            ValueSource::Constant(c) if *c < self.constants.len() => Ok(()),
            ValueSource::Constant(c) => Err(format!("there is no constant {c}")),
            ValueSource::Block(p) => match written.get(p.block) {
                // A block without elements needs no writer.
                Some(w) if *w || self.blocks[p.block].elements == 0 => self.inside(p, 0),
                _ => Err(format!("block {} holds nothing by then", p.block)),
            },
        }
    }

    /// Whether a source, which exists, begins with a boolean.
    fn is_flag(&self, source: &ValueSource) -> Result<(), String> {
        let dtype = match source {
            ValueSource::Block(p) => self.blocks[p.block].dtype,
            ValueSource::Constant(c) => self.constants[*c].dtype,
        };
        if dtype != DType::Bool {
            return Err(format!("its condition is of {}", dtype.name()));
        }
        self.holds(source, 1)
    }

    fn sizes(&self, work: &Work) -> Result<(), String> {
        let far = || "its numbers are too large".to_string();
        match work {
            Work::Kernel { output, .. } => self.inside(output, 0),
            Work::Plain { .. } => work.writes().iter().try_for_each(|p| self.inside(p, 0)),
            Work::Fill { to, elements, .. } => self.inside(to, *elements),
            Work::Copy { from, from_offset, to, axes } => {
                let (target, low, high) = span(axes).ok_or_else(far)?;
                self.inside(to, target)?;
                self.alike(from, to, true)?;
                let first = i64::try_from(*from_offset).map_err(|_| far())?;
                let (low, high) = (first.checked_add(low), first.checked_add(high));
                let (low, high) = (low.ok_or_else(far)?, high.ok_or_else(far)?);
                let (Ok(_), Ok(high)) = (usize::try_from(low), usize::try_from(high)) else {
                    return Err("it reads before its source".into());
                };
                self.holds(from, high)
            }
            Work::Runs { from, to, runs } => {
                self.inside(to, 0)?;
                self.alike(from, to, false)?;
                runs.iter().try_for_each(|&[t, f, n]| {
                    self.inside(to, t.checked_add(n).ok_or_else(far)?)?;
                    self.holds(from, f.checked_add(n).ok_or_else(far)?)
                })
            }
        }
    }

    /// Whether a move's ends, which exist, are of one type, or of two between which it converts.
    fn alike(&self, from: &ValueSource, to: &BlockPlace, converts: bool) -> Result<(), String> {
        let source = self.dtype(from);
        match self.blocks[to.block].dtype {
            target if target == source => Ok(()),
            target if converts && (target.is_half() || source.is_half()) => {
                let all = [target, source].iter().all(|d| d.is_half() || *d == DType::F32);
                all.then_some(())
                    .ok_or_else(|| format!("it converts {} to {}", source.name(), target.name()))
            }
            target => Err(format!("it moves {} to {}", source.name(), target.name())),
        }
    }

    /// Checks that a source has `elements` elements.
    fn holds(&self, source: &ValueSource, elements: usize) -> Result<(), String> {
        match source {
            ValueSource::Block(p) => self.inside(p, elements),
            ValueSource::Constant(c) if elements <= self.constants[*c].elements => Ok(()),
            ValueSource::Constant(c) => {
                Err(format!("constant {c} has fewer than {elements} elements"))
            }
        }
    }
}

/// Elements that a copy reaches in its target, and the first and the end that it reaches in its
/// source; none where the numbers exceed any memory.
fn span(axes: &[Stride]) -> Option<(usize, i64, i64)> {
    if axes.iter().any(|a| a.extent == 0) {
        return Some((0, 0, 0));
    }
    let (mut target, mut low, mut high) = (1usize, 0i64, 1i64);
    for a in axes {
        let more = a.extent - 1;
        target = target.checked_add(more.checked_mul(a.to)?)?;
        let reach = i64::try_from(more).ok()?.checked_mul(i64::try_from(a.from).ok()?)?;
        if reach < 0 {
            low = low.checked_add(reach)?;
        } else {
            high = high.checked_add(reach)?;
        }
    }
    Some((target, low, high))
}
