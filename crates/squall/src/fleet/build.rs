//! A builder: it compiles the candidates that workers will want, on a machine that may lack their
//! device. It generates each kernel from its task's expression, as a worker does; no text that
//! comes from the server is compiled.

use super::work::{plain_name, process_name};
use super::{Fleet, FleetError};
use crate::error::Error;
use crate::event::{Event, Listen};
use crate::settings::TargetRequest;
use crate::target_context::{Context, toolchain_id};
use crate::task_kernels::symbol_of;
use serde::{Deserialize, Serialize};
use squall_compiler::sketches;
use squall_core::{KernelSource, Target, Task, Workload, find_tunable};
use squall_fleet::{BuildOrder, WorkerName};
use squall_measure::TemporaryFolder;
use squall_measure::cpu::{Object, Toolchain};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an idle builder waits for the server's word before it asks.
const POLL: Duration = Duration::from_secs(1);
/// How often a server that cannot be reached is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// How often classes are looked at again.
const CLASSES: Duration = Duration::from_secs(2);

/// How a machine builds for a fleet.
#[derive(Clone, Debug)]
pub struct BuilderRequest {
    /// The server's address.
    pub server: String,
    /// The level of instructions of the classes that are served.
    pub target: TargetRequest,
    /// Compilers at once.
    pub jobs: usize,
    /// Whether it ends where no slice is left for which it could build.
    pub until_idle: bool,
}

/// What a builder did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BuiltForFleet {
    /// Objects that it made.
    pub built: u64,
    /// Candidates for which it could make none: the worker will say why.
    pub refused: u64,
    /// Seconds in all.
    pub seconds: f64,
}

/// What a builder must know of a class's machine.
#[derive(Serialize, Deserialize)]
pub(super) struct ClassMachine {
    pub target: Target,
    /// What `native` means there; none where the level of instructions has a name.
    pub native: Option<String>,
}

/// Builds until `stop` is set, or no slice is left and that is enough.
///
/// # Errors
/// Where there is no compiler, the target is a GPU, or the fleet refuses the builder.
pub fn build(
    context: &Context,
    request: &BuilderRequest,
    stop: &AtomicBool,
    listen: &mut Listen<'_>,
) -> Result<BuiltForFleet, Error> {
    let start = Instant::now();
    let toolchain = match request.target {
        TargetRequest::Cpu => context.toolchain()?.clone(),
        TargetRequest::CpuAt(isa) => context.toolchain()?.at(isa)?,
        TargetRequest::Cuda(_) | TargetRequest::CudaAll => {
            return Err(Error::Usage {
                message: "builders make kernels of CPUs".into(),
                hint: "leave --target out; kernels of GPUs are compiled where they run".into(),
            });
        }
    };
    let folder = TemporaryFolder::new("builds")?;
    let (built, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let (end, failure) = (AtomicBool::new(false), Mutex::new(None));
    let said = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let bench = |number: usize| Bench {
            request,
            toolchain: &toolchain,
            folder: folder.path(),
            name: WorkerName(format!("builder:{}:{number}", process_name())),
            counts: (&built, &refused),
            line: None,
            classes: HashMap::new(),
            looked: None,
        };
        let threads: Vec<_> = (0..request.jobs.max(1))
            .map(|number| {
                let (bench, end, failure, said) = (bench(number), &end, &failure, &said);
                scope.spawn(move || {
                    if let Err(e) = bench.work(end, said) {
                        end.store(true, Ordering::Relaxed);
                        failure.lock().unwrap_or_else(|p| p.into_inner()).get_or_insert(e);
                    }
                })
            })
            .collect();
        while !threads.iter().all(|t| t.is_finished()) {
            if stop.load(Ordering::Relaxed) {
                end.store(true, Ordering::Relaxed);
            }
            let texts = std::mem::take(&mut *said.lock().unwrap_or_else(|p| p.into_inner()));
            texts.into_iter().for_each(|text| listen(Event::Note(text)));
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    match failure.into_inner().unwrap_or_else(|p| p.into_inner()) {
        Some(e) => Err(e),
        None => Ok(BuiltForFleet {
            built: built.into_inner(),
            refused: refused.into_inner(),
            seconds: start.elapsed().as_secs_f64(),
        }),
    }
}

/// One compiler and its connection.
struct Bench<'a> {
    request: &'a BuilderRequest,
    toolchain: &'a Toolchain,
    folder: &'a Path,
    name: WorkerName,
    /// Objects made, and candidates refused.
    counts: (&'a AtomicU64, &'a AtomicU64),
    /// None while the server cannot be reached.
    line: Option<(Fleet, i32)>,
    /// The classes that are served, and what their kernels are made for.
    classes: HashMap<i32, Target>,
    looked: Option<Instant>,
}

impl Bench<'_> {
    /// Builds until it is told to end.
    fn work(mut self, end: &AtomicBool, said: &Mutex<Vec<String>>) -> Result<(), Error> {
        self.connect()?;
        let say = |text: String| said.lock().unwrap_or_else(|p| p.into_inner()).push(text);
        while !end.load(Ordering::Relaxed) {
            match self.turn(end) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Error::Fleet(e)) if e.is_lost() => {
                    if self.line.take().is_some() {
                        say(format!("{e}; it is tried again"));
                    }
                    std::thread::sleep(AGAIN);
                    match self.connect() {
                        Ok(()) => say("the fleet's server is back".into()),
                        Err(e) if e.is_lost() => {}
                        Err(e) => return Err(e.into()),
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<(), FleetError> {
        let mut fleet = Fleet::connect(&self.request.server)?;
        let number = fleet.join_builders(&self.name, env!("CARGO_PKG_VERSION"))?;
        self.line = Some((fleet, number));
        self.looked = None;
        Ok(())
    }

    /// One candidate, or a wait; true where nothing is left to do.
    fn turn(&mut self, end: &AtomicBool) -> Result<bool, Error> {
        let Some((fleet, number)) = &mut self.line else {
            return Err(Error::Fleet(FleetError::Connect {
                server: "the fleet's server".into(),
                detail: "it was lost".into(),
            }));
        };
        if self.looked.is_none_or(|t| t.elapsed() >= CLASSES) {
            self.classes = served(fleet, self.toolchain)?;
            self.looked = Some(Instant::now());
        }
        let ids: Vec<i32> = self.classes.keys().copied().collect();
        let Some(order) = fleet.take_build(*number, &ids)? else {
            if self.request.until_idle && !fleet.has_slices(&ids)? {
                return Ok(true);
            }
            fleet.wait_for_builds(POLL)?;
            return Ok(false);
        };
        let source = self.classes.get(&order.class).and_then(|target| source(&order, target));
        let key = source.as_ref().and_then(|s| self.toolchain.shared_object_key(s));
        let (Some(source), Some(key)) = (source, key) else {
            self.counts.1.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        };
        if fleet.begin_artifact(*number, &key, false)? {
            let object = self.object(&source, &key, end);
            let count = if object.is_some() { self.counts.0 } else { self.counts.1 };
            if let Some((fleet, number)) = &mut self.line {
                fleet.end_artifact(*number, &key, object.as_deref())?;
            }
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(false)
    }

    /// The object of a source; none where it cannot be made here.
    fn object(&self, source: &KernelSource, key: &str, end: &AtomicBool) -> Option<Vec<u8>> {
        if end.load(Ordering::Relaxed) {
            return None;
        }
        let to = self.folder.join(format!("{key}.o"));
        let made = self.toolchain.object(source, &to);
        let bytes = matches!(made, Ok(Object::Made(_))).then(|| std::fs::read(&to).ok());
        let _ = std::fs::remove_file(&to);
        bytes.flatten()
    }
}

/// The classes whose kernels this toolchain makes, and what they are made for.
fn served(fleet: &mut Fleet, toolchain: &Toolchain) -> Result<HashMap<i32, Target>, FleetError> {
    let (id, native) = (toolchain_id(toolchain), toolchain.native_machine());
    let all = fleet.classes()?.into_iter().filter(|c| c.toolchain == id);
    let described = all.filter_map(|c| {
        // What a server says is a stranger's word.
        let machine: ClassMachine = serde_json::from_str(&c.machine?).ok()?;
        (machine.native == native && machine.target.isa == toolchain.isa())
            .then_some((c.id, machine.target))
    });
    Ok(described.collect())
}

/// The kernel of a candidate; none where the order is of another program's making.
fn source(order: &BuildOrder, target: &Target) -> Option<KernelSource> {
    let workload = Workload::parse(&order.workload).ok().filter(|w| w.foreign.is_none())?;
    let task = Task::new(plain_name(&order.name), workload);
    if task.id != order.task {
        return None;
    }
    let (tunable, configuration) = order.candidate.split_once(": ")?;
    let all = sketches(&task.workload, target);
    let tunable = find_tunable(&all, tunable)?;
    tunable.realize(&tunable.space().parse(configuration).ok()?, &symbol_of(&task)).ok()
}
