//! Checks that the parts of a host plan fit together: all numbers refer to existing buffers,
//! kernels and regions, all ranges stay inside, roles suit. Output: nothing, or an error that names
//! the part. `host/verify.c` makes the same checks in C.

use super::{
    ALIGNMENT, Argument, At, Buffer, Element, HostPlan, HostPlanError, Kernel, Launch,
    MOST_ARGUMENTS, MOST_AXES, MOST_BYTES, MOST_MAPS, MOST_PARAMETERS, MoveAxis, Parameter, Role,
    Step, Work,
};
use squall_core::{LaunchPhase, Mapped, TensorMap};

/// The words of the record of an output that grew: `RT_RECORD` of `host/element.h`.
const RECORD: u64 = 35;

pub(super) fn plan(p: &HostPlan) -> Result<(), HostPlanError> {
    let fits = || {
        words(p)?;
        regions(p)?;
        buffers(p)?;
        kernels(p)?;
        p.steps.iter().enumerate().try_for_each(|(i, s)| {
            let fits = match &s.work {
                Work::Call { .. } => call(p, &s.work),
                _ => movement(p, s),
            };
            let decided = s.when.iter().all(|(b, _)| condition(p, *b));
            let fits = fits.filter(|()| decided);
            fits.ok_or_else(|| format!("step {i} ({}) does not fit its buffers", s.name))
        })
    };
    fits().map_err(HostPlanError::Unfit)
}

/// Whether the plan can be printed as words of lines, none of them longer than a reader takes.
fn words(p: &HostPlan) -> Result<(), String> {
    let plain = |t: &str| !t.is_empty() && t.bytes().all(|b| b > b' ' && b != 127);
    let files = p.regions.iter().flat_map(|r| r.file.iter().map(|f| f.0.as_str()));
    let given = p.buffers.iter().filter_map(|b| b.file.as_deref());
    let libraries = p.kernels.iter().filter_map(|k| k.library.as_deref());
    let entries = p.kernels.iter().flat_map(|k| &k.launches).map(|l| l.entry.as_str());
    let mut all = files.chain(given).chain(libraries).chain(entries);
    all.find(|t| !plain(t)).map_or(Ok(()), |t| Err(format!("`{t}` is not one word")))
}

/// A size that the format can hold.
fn small(n: u64) -> Result<u64, String> {
    if n <= MOST_BYTES { Ok(n) } else { Err(format!("{n} is too large")) }
}

fn regions(p: &HostPlan) -> Result<(), String> {
    p.regions.iter().enumerate().try_for_each(|(i, r)| {
        let filled = match r.role {
            Role::Constant | Role::Weight => true,
            Role::Scratch | Role::Prepared => false,
            _ => return Err(format!("region {i} cannot be of {}", r.role)),
        };
        if filled != r.file.is_some() {
            return Err(format!(
                "region {i} {}",
                if filled { "needs a file" } else { "has a file" }
            ));
        }
        small(r.bytes).and(small(r.file.as_ref().map_or(0, |f| f.1))).map(|_| ())
    })
}

/// Which buffers may lie in which regions.
fn may_lie(buffer: Role, region: Role) -> bool {
    match region {
        Role::Scratch => {
            matches!(buffer, Role::Data | Role::Output | Role::Scratch | Role::Workspace)
        }
        _ => buffer == region,
    }
}

/// Whether a buffer that is said to be a part of an input or an output lies inside of it.
fn is_part(p: &HostPlan, b: &Buffer) -> bool {
    let Some(number) = b.of else { return true };
    let Some(whole) = p.buffers.get(number as usize) else { return false };
    let is_port = match (whole.role, b.role) {
        (Role::Output, Role::Scratch | Role::Data) => !whole.grown,
        (role, Role::Scratch) => role == Role::Data,
        _ => false,
    };
    let (Some((region, from)), Some((own, at))) = (whole.place, b.place) else { return false };
    let room = at.checked_sub(from).and_then(|behind| whole.bytes().checked_sub(behind));
    is_port
        && whole.of.is_none()
        && region == own
        && whole.element == b.element
        && room.is_some_and(|room| b.bytes() <= room)
}

fn buffers(p: &HostPlan) -> Result<(), String> {
    p.buffers.iter().enumerate().try_for_each(|(i, b)| {
        if b.count > MOST_BYTES / b.element.bytes() {
            return Err(format!("buffer {i} is too large"));
        }
        if b.range.is_some_and(|(low, high)| !(low <= high && high - low < 1e300)) {
            return Err(format!("the range of buffer {i} is empty"));
        }
        let made = b.range.is_some() || b.hard.is_some() || b.file.is_some();
        if made && !matches!(b.role, Role::Data | Role::Weight) {
            return Err(format!("buffer {i} is no input"));
        }
        if b.hard.is_some() && b.element != Element::F32 {
            return Err(format!("buffer {i} holds hard values, and is not of f32"));
        }
        if b.gaps && b.role != Role::Output {
            return Err(format!("buffer {i} is no output, and has gaps"));
        }
        let is_record = b.element.letter() == 'l' && b.count == RECORD;
        if b.grown && !(b.role == Role::Output && is_record) {
            return Err(format!("buffer {i} is no record of an output, and grown"));
        }
        let is_listed = b.role == Role::Constant && b.element.letter() == 'l' && b.place.is_none();
        let has_all = is_listed && b.count == b.values.len() as u64;
        if !(b.values.is_empty() || has_all) {
            return Err(format!("buffer {i} is no constant of the values that it has"));
        }
        let Some((region, offset)) = b.place else {
            return match b.role {
                Role::Constant if b.values.is_empty() => {
                    Err(format!("constant {i} lies in no region"))
                }
                _ => Ok(()),
            };
        };
        let Some(r) = p.regions.get(region as usize) else {
            return Err(format!("buffer {i} lies in a region that is not there"));
        };
        if !may_lie(b.role, r.role) {
            return Err(format!("buffer {i} may not lie in its region"));
        }
        // Values may be parts of others, and weights lie anywhere in files of models, from where
        // they are copied to be prepared; all else begins a line of the cache.
        let step = match b.role {
            Role::Scratch => b.element.bytes(),
            Role::Weight => 1,
            _ => ALIGNMENT,
        };
        let room = r.bytes.checked_sub(offset).filter(|_| offset % step == 0);
        match room.filter(|room| b.bytes() <= *room) {
            Some(_) => Ok(()),
            None => Err(format!("buffer {i} does not fit its region")),
        }
    })?;
    match p.buffers.iter().position(|b| !is_part(p, b)) {
        Some(i) => Err(format!("buffer {i} is no part of its input or output")),
        None => Ok(()),
    }
}

fn is_identifier(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
}

impl Kernel {
    pub(super) fn of(&self, role: Role) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(move |p| p.role == role)
    }

    /// The bytes of the n-th parameter of a kind.
    pub(crate) fn bytes_of(&self, role: Role, n: u32) -> Option<u64> {
        self.of(role).nth(n as usize).map(|p| p.count.saturating_mul(p.element.bytes()))
    }
}

fn kernels(p: &HostPlan) -> Result<(), String> {
    p.kernels.iter().enumerate().try_for_each(|(i, k)| {
        let s = &k.symbol;
        if !is_identifier(s) {
            return Err(format!("the symbol of kernel {i} is no name in C"));
        }
        if k.library.as_deref() == Some("-") {
            return Err(format!("`{s}` cannot be in a library of that name"));
        }
        let (all, outputs) = (k.parameters.len(), k.of(Role::Output).count());
        if all > MOST_PARAMETERS || outputs == 0 {
            return Err(format!("`{s}` has {all} parameters, {outputs} outputs of them"));
        }
        let known = |r| matches!(r, Role::Data | Role::Weight | Role::Output);
        if k.parameters.iter().any(|q| !known(q.role) || q.count > MOST_BYTES / q.element.bytes()) {
            return Err(format!("a parameter of `{s}` is none"));
        }
        small(k.prepared).and(small(k.workspace))?;
        match (k.language.is_launched(), k.launches.is_empty()) {
            (false, false) => {
                return Err(format!("`{s}` is C and has launches"));
            }
            (true, true) if k.library.is_some() => {
                return Err(format!("`{s}` has no launch"));
            }
            _ => {}
        }
        k.launches.iter().enumerate().try_for_each(|(n, l)| {
            launch(k, l).ok_or_else(|| format!("launch {n} of `{s}` does not fit it"))
        })
    })
}

fn launch(k: &Kernel, l: &Launch) -> Option<()> {
    let sizes = l.blocks.iter().chain(&l.threads);
    let whole = sizes.clone().all(|n| (1..=i32::MAX as u32).contains(n)) && l.shared <= 1 << 30;
    let blocks: u128 = l.blocks.iter().map(|n| u128::from(*n)).product();
    let threads: u128 = l.threads.iter().map(|n| u128::from(*n)).product();
    let few = l.arguments.len() <= MOST_ARGUMENTS && l.maps.len() <= MOST_MAPS;
    let sizes_fit = whole && blocks <= i64::MAX as u128 && threads <= 1024 && few;
    let fits = sizes_fit
        && l.arguments.iter().all(|a| argument(k, l, a))
        && l.maps.iter().all(|m| map(k, l, m).is_some());
    fits.then_some(())
}

fn argument(k: &Kernel, l: &Launch, a: &Argument) -> bool {
    let call = l.phase == LaunchPhase::Call;
    match a {
        Argument::Data(n) => call && k.bytes_of(Role::Data, *n).is_some(),
        Argument::Weight(n) => !call && k.bytes_of(Role::Weight, *n).is_some(),
        Argument::Output(n) => call && k.bytes_of(Role::Output, *n).is_some(),
        Argument::Restored { output, data } => {
            match (k.bytes_of(Role::Output, *output), k.bytes_of(Role::Data, *data)) {
                (Some(to), Some(from)) => call && to <= from,
                _ => false,
            }
        }
        Argument::Number(bytes) => (1..=8).contains(&bytes.len()),
        Argument::Map(n) => (*n as usize) < l.maps.len(),
        Argument::Prepared | Argument::Workspace => true,
        Argument::Status => call,
    }
}

fn map(k: &Kernel, l: &Launch, m: &TensorMap) -> Option<()> {
    let (start, room) = match m.memory {
        Mapped::Data(n) if l.phase == LaunchPhase::Call => (0, k.bytes_of(Role::Data, n)?),
        Mapped::Data(_) => return None,
        Mapped::Prepared(at) => (at, k.prepared),
        Mapped::Workspace(at) => (at, k.workspace),
    };
    let rank = m.extents.len();
    let same = m.strides.len() + 1 == rank && m.spanned.len() == rank && m.steps.len() == rank;
    let limits = m.spanned.iter().all(|n| (1..=256).contains(n))
        && m.steps.iter().all(|n| (1..=8).contains(n))
        && m.extents.iter().all(|n| (1..=u64::from(u32::MAX)).contains(n));
    if !(1..=5).contains(&rank) || !same || !limits || start % 16 != 0 {
        return None;
    }
    let mut room = room.checked_sub(start)?;
    for (i, extent) in m.extents.iter().enumerate() {
        let stride = if i == 0 { 2 } else { m.strides[i - 1] };
        if i > 0 && stride % 16 != 0 {
            return None;
        }
        // Of the last element of the dimension: bytes from its first.
        room = room.checked_sub(stride.checked_mul(extent - 1)?)?;
    }
    (room >= 2).then_some(())
}

/// Whether steps may write a buffer: inputs are the caller's, also in their parts.
fn is_written(p: &HostPlan, b: &Buffer) -> bool {
    let whole = b.of.and_then(|n| p.buffers.get(n as usize));
    match b.role {
        Role::Scratch => whole.is_none_or(|w| w.role == Role::Output),
        r => r == Role::Output,
    }
}

fn is_read(r: Role) -> bool {
    matches!(r, Role::Output | Role::Scratch | Role::Data | Role::Constant)
}

/// Whether a buffer of its own kind has room for the bytes that a kernel wants.
fn holds(p: &HostPlan, number: Option<u32>, role: Role, bytes: u64) -> Option<()> {
    let Some(number) = number else { return (bytes == 0).then_some(()) };
    let b = p.buffers.get(number as usize)?;
    (b.role == role && b.bytes() >= bytes).then_some(())
}

fn call(p: &HostPlan, work: &Work) -> Option<()> {
    let Work::Call { kernel, buffers, prepared, workspace } = work else { return None };
    let k = p.kernels.get(*kernel as usize)?;
    if buffers.len() != k.parameters.len() {
        return None;
    }
    for (number, q) in buffers.iter().zip(&k.parameters) {
        let b = p.buffers.get(*number as usize)?;
        let role = match q.role {
            Role::Data => is_read(b.role),
            Role::Weight => matches!(b.role, Role::Weight | Role::Constant),
            _ => is_written(p, b),
        };
        if !role || b.element != q.element || b.count < q.count {
            return None;
        }
    }
    holds(p, *prepared, Role::Prepared, k.prepared)?;
    holds(p, *workspace, Role::Workspace, k.workspace)
}

/// Whether a buffer begins with a boolean.
fn condition(p: &HostPlan, buffer: u32) -> bool {
    let is_one = |b: &Buffer| is_read(b.role) && b.element == Element::BOOL && b.count > 0;
    p.buffers.get(buffer as usize).is_some_and(is_one)
}

fn target<'a>(p: &'a HostPlan, at: &At) -> Option<&'a Buffer> {
    p.buffers.get(at.buffer as usize).filter(|b| is_written(p, b))
}

fn source<'a>(p: &'a HostPlan, at: &At, element: Element) -> Option<&'a Buffer> {
    let b = p.buffers.get(at.buffer as usize)?;
    (is_read(b.role) && b.element == element).then_some(b)
}

/// Whether a copy reads what it writes, or converts between floats of 32 bits and of 16.
fn converts(from: Element, to: Element) -> bool {
    let is_narrow = |e: Element| matches!(e, Element::BF16 | Element::F16);
    from == to || (from == Element::F32 && is_narrow(to)) || (to == Element::F32 && is_narrow(from))
}

/// Whether the elements that a copy touches on one side lie in the buffer.
fn axes_fit(
    axes: &[MoveAxis],
    stride: impl Fn(&MoveAxis) -> i64,
    at: &At,
    b: &Buffer,
) -> Option<()> {
    let mut above = b.count.checked_sub(1)?.checked_sub(at.element)?;
    let mut below = at.element;
    for a in axes {
        let stride = stride(a);
        let room = if stride < 0 { &mut below } else { &mut above };
        let span = stride.unsigned_abs().checked_mul(a.extent.checked_sub(1)?)?;
        *room = room.checked_sub(span)?;
    }
    Some(())
}

fn movement(p: &HostPlan, s: &Step) -> Option<()> {
    match &s.work {
        Work::Call { .. } => None,
        Work::Fill { to, count, value } => {
            let b = target(p, to)?;
            let whole = value.len() as u64 == b.element.bytes();
            (whole && *count <= b.count.checked_sub(to.element)?).then_some(())
        }
        Work::Copy { from, to, axes } => {
            let t = target(p, to)?;
            let f = p.buffers.get(from.buffer as usize).filter(|b| is_read(b.role))?;
            if !converts(f.element, t.element) {
                return None;
            }
            if !(1..=MOST_AXES).contains(&axes.len()) {
                return None;
            }
            let mut all: u64 = 1;
            for a in axes {
                all = all.checked_mul(a.extent).filter(|n| (1..=MOST_BYTES).contains(n))?;
                if a.to > MOST_BYTES || a.from.unsigned_abs() > MOST_BYTES {
                    return None;
                }
            }
            axes_fit(axes, |a| a.to as i64, to, t)?;
            axes_fit(axes, |a| a.from, from, f)
        }
        Work::Runs { from, to, runs } => {
            let t = target(p, to)?;
            let f = source(p, from, t.element)?;
            let (to, from) = (t.count.checked_sub(to.element)?, f.count.checked_sub(from.element)?);
            runs.iter().try_for_each(|[t, f, length]| {
                to.checked_sub(*t)?.checked_sub(*length)?;
                from.checked_sub(*f)?.checked_sub(*length).map(|_| ())
            })
        }
    }
}
