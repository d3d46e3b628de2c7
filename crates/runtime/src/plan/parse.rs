//! Parses the text of a host plan. Input: any text; output: a plan, or the first wrong line with
//! the reason. It accepts exactly the texts that `host/plan.c` accepts, which a test compares.

use super::print::ROLES;
use super::{
    Argument, At, Buffer, Element, HostPlan, HostPlanError, Kernel, Launch, MOST_AXES, MOST_BYTES,
    MOST_PARAMETERS, MoveAxis, Parameter, Region, Role, Step, VERSION, Work,
};
use squall_core::workload::Hard;
use squall_core::{Language, LaunchPhase, Mapped, TensorMap};

/// The reason why a line cannot be read.
type Wrong = &'static str;

/// The rest of a line, from whose front words are taken.
struct Words<'a>(Option<&'a str>);

impl<'a> Words<'a> {
    fn word(&mut self) -> Result<&'a str, Wrong> {
        let rest = self.0.filter(|r| !r.is_empty() && !r.starts_with(' '));
        let rest = rest.ok_or("a word is missing")?;
        let (word, rest) = rest.split_once(' ').map_or((rest, None), |(w, r)| (w, Some(r)));
        self.0 = rest;
        Ok(word)
    }

    fn more(&self) -> bool {
        self.0.is_some()
    }

    fn number(&mut self, most: u64) -> Result<u64, Wrong> {
        digits(self.word()?, most)
    }

    fn small(&mut self, most: u32) -> Result<u32, Wrong> {
        Ok(self.number(u64::from(most))? as u32)
    }

    /// A number of a buffer, kernel or region.
    fn index(&mut self) -> Result<u32, Wrong> {
        self.small(u32::MAX - 1)
    }

    fn signed(&mut self) -> Result<i64, Wrong> {
        let text = self.word()?;
        match text.strip_prefix('-') {
            Some(text) => Ok(-(digits(text, MOST_BYTES)? as i64)),
            None => Ok(digits(text, MOST_BYTES)? as i64),
        }
    }

    fn real(&mut self) -> Result<f64, Wrong> {
        let text = self.word()?;
        let plain = text.bytes().all(|b| b"0123456789+-.eE".contains(&b));
        text.parse().ok().filter(|_| plain).ok_or("a number is none")
    }

    fn role(&mut self) -> Result<Role, Wrong> {
        let text = self.word()?;
        ROLES.iter().find(|(_, name)| *name == text).map(|r| r.0).ok_or("there is no such role")
    }

    fn element(&mut self) -> Result<Element, Wrong> {
        let mut letters = self.word()?.chars();
        let element = letters.next().and_then(Element::new).filter(|_| letters.next().is_none());
        element.ok_or("there is no such type")
    }

    fn at(&mut self) -> Result<At, Wrong> {
        Ok(At { buffer: self.index()?, element: self.number(MOST_BYTES)? })
    }

    /// The rest of the line.
    fn name(&mut self) -> String {
        unescaped(self.0.take().unwrap_or(""))
    }
}

fn digits(text: &str, most: u64) -> Result<u64, Wrong> {
    if text.is_empty() {
        return Err("a number is missing");
    }
    let mut value: u64 = 0;
    for b in text.bytes() {
        if !b.is_ascii_digit() {
            return Err("a number is none");
        }
        let next = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(b - b'0')));
        value = next.filter(|v| *v <= most).ok_or("a number is too large")?;
    }
    Ok(value)
}

fn unescaped(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let escape = rest.as_str().chars().next().filter(|_| c == '\\');
        let meant = escape.and_then(|e| match e {
            'n' => Some('\n'),
            'r' => Some('\r'),
            '0' => Some('\0'),
            '\\' => Some('\\'),
            _ => None,
        });
        if meant.is_some() {
            rest.next();
        }
        name.push(meant.unwrap_or(c));
    }
    name
}

pub(super) fn plan(text: &str) -> Result<HostPlan, HostPlanError> {
    let wrong = |line: usize, why: Wrong| HostPlanError::Line { line: line + 1, why };
    if text.contains('\0') {
        return Err(wrong(0, "the plan holds a byte 0"));
    }
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut plan = HostPlan::default();
    let mut stage = 0;
    for (n, line) in text.split('\n').enumerate() {
        let mut words = Words(Some(line));
        let read = if n == 0 { head(line) } else { entry(&mut words, &mut plan, &mut stage) };
        read.map_err(|why| wrong(n, why))?;
        if n > 0 && words.more() {
            return Err(wrong(n, "the line is too long"));
        }
    }
    Ok(plan)
}

fn head(line: &str) -> Result<(), Wrong> {
    let version = line.strip_prefix("squall plan ").ok_or("it is no plan of Squall's")?;
    match digits(version, u64::from(u32::MAX)) {
        Ok(v) if v == u64::from(VERSION) => Ok(()),
        _ => Err("the plan is of another version; this is version 2"),
    }
}

fn entry(w: &mut Words<'_>, plan: &mut HostPlan, stage: &mut u32) -> Result<(), Wrong> {
    let first = w.word()?;
    let own = match first {
        "region" => 0,
        "buffer" => 1,
        "kernel" | "numbers" | "parameter" | "launch" | "map" => 2,
        "call" | "copy" | "runs" | "fill" | "when" => 3,
        _ => return Err("there is no such entry"),
    };
    if own < *stage {
        return Err("regions, buffers, kernels and steps follow one another");
    }
    *stage = own;
    let kernel = plan.kernels.last_mut();
    match first {
        "region" => plan.regions.push(region(w)?),
        "buffer" => plan.buffers.push(buffer(w)?),
        "kernel" => plan.kernels.push(self::kernel(w)?),
        "numbers" => {
            let numbers = &mut kernel.ok_or("numbers stand before the first kernel")?.numbers;
            if !numbers.is_empty() {
                return Err("a kernel has one line of numbers");
            }
            numbers.push(w.number(MOST_BYTES)?);
            while w.more() {
                numbers.push(w.number(MOST_BYTES)?);
            }
        }
        "parameter" => kernel
            .ok_or("a parameter stands before the first kernel")?
            .parameters
            .push(parameter(w)?),
        "launch" => {
            kernel.ok_or("a launch stands before the first kernel")?.launches.push(launch(w)?);
        }
        "map" => {
            let launch = kernel.and_then(|k| k.launches.last_mut());
            let launch = launch.ok_or("a tensor map stands before the first launch")?;
            launch.maps.push(map(w)?);
        }
        "when" => {
            let step = plan.steps.last_mut().ok_or("a condition stands before the first step")?;
            step.when.push((w.index()?, w.number(1)? == 1));
        }
        _ => plan.steps.push(step(first, w, &plan.kernels)?),
    }
    Ok(())
}

fn region(w: &mut Words<'_>) -> Result<Region, Wrong> {
    let (role, bytes) = (w.role()?, w.number(MOST_BYTES)?);
    let file = if w.more() { Some((w.word()?.into(), w.number(MOST_BYTES)?)) } else { None };
    Ok(Region { role, bytes, file })
}

fn buffer(w: &mut Words<'_>) -> Result<Buffer, Wrong> {
    let (role, element) = (w.role()?, w.element()?);
    let count = w.number(MOST_BYTES / element.bytes())?;
    let mut buffer = Buffer::own(role, element, count);
    match w.word()? {
        "own" => {}
        "in" => buffer.place = Some((w.index()?, w.number(MOST_BYTES)?)),
        _ => return Err("a buffer is `own` or lies `in` a region"),
    }
    while w.more() {
        match w.word()? {
            "range" => buffer.range = Some((w.real()?, w.real()?)),
            "hard" => {
                let word = w.word()?;
                let hard = [Hard::Nan, Hard::All].into_iter().find(|h| h.word() == word);
                buffer.hard = Some(hard.ok_or("hard values are `nan` or `all`")?);
            }
            "file" => buffer.file = Some(w.word()?.into()),
            "gaps" => buffer.gaps = true,
            "grown" => buffer.grown = true,
            "of" => buffer.of = Some(w.index()?),
            "values" => {
                buffer.values.push(w.signed()?);
                while w.more() {
                    buffer.values.push(w.signed()?);
                }
            }
            _ => return Err("expected `range`, `hard`, `file`, `gaps`, `grown`, `of` or `values`"),
        }
    }
    Ok(buffer)
}

fn kernel(w: &mut Words<'_>) -> Result<Kernel, Wrong> {
    let language = Language::of_word(w.word()?).ok_or("there is no such language")?;
    Ok(Kernel {
        language,
        symbol: w.word()?.into(),
        library: Some(w.word()?).filter(|l| *l != "-").map(Into::into),
        prepared: w.number(MOST_BYTES)?,
        workspace: w.number(MOST_BYTES)?,
        numbers: Vec::new(),
        parameters: Vec::new(),
        launches: Vec::new(),
    })
}

fn parameter(w: &mut Words<'_>) -> Result<Parameter, Wrong> {
    let (role, element) = (w.role()?, w.element()?);
    let p = Parameter { role, element, count: w.number(MOST_BYTES / element.bytes())? };
    match p.role {
        Role::Data | Role::Weight | Role::Output => Ok(p),
        _ => Err("a parameter is data, weight or output"),
    }
}

fn launch(w: &mut Words<'_>) -> Result<Launch, Wrong> {
    let phase = match w.word()? {
        "prepare" => LaunchPhase::Prepare,
        "call" => LaunchPhase::Call,
        _ => return Err("there is no such phase"),
    };
    let entry = w.word()?.into();
    let mut sizes = [0; 7];
    for n in &mut sizes {
        *n = w.small(i32::MAX as u32)?;
    }
    let [a, b, c, x, y, z, shared] = sizes;
    let mut arguments = Vec::new();
    while w.more() {
        arguments.push(argument(w.word()?)?);
    }
    let (blocks, threads) = ([a, b, c], [x, y, z]);
    Ok(Launch { phase, entry, blocks, threads, shared, arguments, maps: Vec::new() })
}

/// One to eight bytes, each of two digits.
fn hex_bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).filter(|_| !b.is_ascii_uppercase());
    let digits: Option<Vec<u32>> = hex.bytes().map(digit).collect();
    let digits = digits.filter(|d| d.len() % 2 == 0 && (2..=16).contains(&d.len()));
    Some(digits?.chunks(2).map(|d| (16 * d[0] + d[1]) as u8).collect())
}

fn argument(text: &str) -> Result<Argument, Wrong> {
    const NONE: Wrong = "an argument is none";
    let index = |t: &str| Ok(digits(t, MOST_PARAMETERS as u64)? as u32);
    let kind = text.chars().next().ok_or(NONE)?;
    let rest = &text[kind.len_utf8()..];
    match (kind, rest) {
        ('p', "") => Ok(Argument::Prepared),
        ('s', "") => Ok(Argument::Workspace),
        ('e', "") => Ok(Argument::Status),
        ('d', n) => Ok(Argument::Data(index(n)?)),
        ('w', n) => Ok(Argument::Weight(index(n)?)),
        ('o', n) => Ok(Argument::Output(index(n)?)),
        ('m', n) => Ok(Argument::Map(index(n)?)),
        ('r', n) => {
            let (output, data) = n.split_once(',').unwrap_or((n, ""));
            Ok(Argument::Restored { output: index(output)?, data: index(data)? })
        }
        ('x', hex) => Ok(Argument::Number(hex_bytes(hex).ok_or(NONE)?)),
        _ => Err(NONE),
    }
}

fn map(w: &mut Words<'_>) -> Result<TensorMap, Wrong> {
    let memory = w.word()?;
    let known = ["data", "prepared", "workspace"].contains(&memory);
    let at = w.number(MOST_BYTES).and_then(|at| {
        known.then_some(at).ok_or("a tensor map is of data, prepared or workspace")
    })?;
    let memory = match memory {
        // Which data there are is the verifier's to say.
        "data" => Mapped::Data(u32::try_from(at).unwrap_or(u32::MAX)),
        "prepared" => Mapped::Prepared(at),
        _ => Mapped::Workspace(at),
    };
    let rank = w.number(5)?;
    let mut list = |count: u64, most: u64| {
        (0..count).map(|_| w.number(most)).collect::<Result<Vec<u64>, Wrong>>()
    };
    let extents = list(rank, u64::from(u32::MAX))?;
    let strides = list(rank.saturating_sub(1), MOST_BYTES)?;
    let (spanned, steps) = (list(rank, 256)?, list(rank, 8)?);
    let narrow = |all: Vec<u64>| all.into_iter().map(|n| n as u32).collect();
    let (spanned, steps) = (narrow(spanned), narrow(steps));
    Ok(TensorMap { memory, extents, strides, spanned, steps })
}

fn step(kind: &str, w: &mut Words<'_>, kernels: &[Kernel]) -> Result<Step, Wrong> {
    let work = match kind {
        "call" => {
            let kernel = w.index()?;
            let takes = kernels.get(kernel as usize).ok_or("there is no such kernel")?;
            let mut buffers = Vec::new();
            for _ in &takes.parameters {
                buffers.push(optional(w)?.unwrap_or(u32::MAX));
            }
            let (prepared, workspace) = (optional(w)?, optional(w)?);
            Work::Call { kernel, buffers, prepared, workspace }
        }
        "copy" => {
            let (from, to) = (w.at()?, w.at()?);
            let rank = w.number(MOST_AXES as u64)?;
            let mut axes = Vec::new();
            for _ in 0..rank {
                let (extent, to) = (w.number(MOST_BYTES)?, w.number(MOST_BYTES)?);
                axes.push(MoveAxis { extent, to, from: w.signed()? });
            }
            Work::Copy { from, to, axes }
        }
        "runs" => {
            let (from, to) = (w.at()?, w.at()?);
            let mut runs = Vec::new();
            for _ in 0..w.number(MOST_BYTES)? {
                runs.push([w.number(MOST_BYTES)?, w.number(MOST_BYTES)?, w.number(MOST_BYTES)?]);
            }
            Work::Runs { from, to, runs }
        }
        _ => {
            let (to, count) = (w.at()?, w.number(MOST_BYTES)?);
            let value = w.word()?.strip_prefix('x').and_then(hex_bytes);
            Work::Fill { to, count, value: value.ok_or("a number is none")? }
        }
    };
    Ok(Step { name: w.name(), when: Vec::new(), work })
}

/// A buffer's number; `-` is none.
fn optional(w: &mut Words<'_>) -> Result<Option<u32>, Wrong> {
    match w.word()? {
        "-" => Ok(None),
        text => Ok(Some(digits(text, u64::from(u32::MAX - 1))? as u32)),
    }
}
