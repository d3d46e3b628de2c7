//! A builder of a fleet: a process that compiles the kernels that workers will measure, on a
//! machine that may lack their device. Input: build orders from the server (a task's expression, a
//! tunable and a configuration); output: object files, sent to the server. The builder generates
//! each kernel from the task's expression, as a worker does; it compiles no source text that comes
//! from the server. `squall worker --build` runs it; `objects.rs` is the worker's side.

use super::line::FleetLine;
use super::work::{plain_name, process_name};
use super::{Fleet, FleetError};
use crate::base::error::Error;
use crate::target::target_context::{Context, toolchain_id};
use crate::target::target_request::TargetRequest;
use crate::task::event::Listen;
use crate::task::task_kernels::symbol_of;
use squall_compiler::sketches;
use squall_core::{KernelSource, MeasurerError, Target, Task, Workload, find_tunable};
use squall_fleet::{BuildOrder, WorkerName};
use squall_measure::TemporaryFolder;
use squall_measure::cpu::{Object, Toolchain};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an idle builder waits for a notification from the server before it asks.
const POLL: Duration = Duration::from_secs(1);
/// How long a builder with work in hand waits for the next object.
const BRIEFLY: Duration = Duration::from_millis(20);
/// How long a compiler may take: less than the two minutes after which the server gives an object
/// up.
const LIMIT: Duration = Duration::from_secs(90);

/// How a machine builds for a fleet.
#[derive(Clone, Debug)]
pub struct BuilderRequest {
    /// The server's address.
    pub server: String,
    /// The level of instructions of the workers that are served.
    pub target: TargetRequest,
    /// Compilers at once.
    pub jobs: usize,
    /// Whether it ends where no slice is left for which it could build.
    pub until_idle: bool,
}

/// The result of a builder.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BuiltForFleet {
    /// Objects that it made.
    pub built: u64,
    /// Candidates for which it could make none: the worker will say why.
    pub refused: u64,
    /// Seconds in all.
    pub seconds: f64,
}

/// An object that is to be made.
struct Wanted {
    key: String,
    source: KernelSource,
}

/// An object that was made, or none where the compiler refuses the source; an error where it would
/// refuse any.
type Made = (String, Result<Option<Vec<u8>>, MeasurerError>);

/// Builds until `stop` is set, or no slice is left and that is enough.
///
/// # Errors
/// Where there is no compiler or it breaks, where the target is a GPU, or the fleet refuses the
/// builder.
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
    let Some(code) = toolchain.shared_code() else {
        return Err(Error::Usage {
            message: "variables such as CPATH lead the compiler to files of this machine's".into(),
            hint: "unset them: objects are shared by machines".into(),
        });
    };
    let folder = TemporaryFolder::new("builds")?;
    let jobs = request.jobs.max(1);
    let end = AtomicBool::new(false);
    let (give, take) = channel::<Wanted>();
    let (made, results) = channel::<Made>();
    let take = Mutex::new(take);
    std::thread::scope(|scope| {
        // Also by an error: compilers must not run on.
        let _end = SetOnDrop(&end);
        for _ in 0..jobs {
            let (made, take, end, toolchain) = (made.clone(), &take, &end, &toolchain);
            let folder = folder.path();
            scope.spawn(move || compile(toolchain, folder, take, &made, end));
        }
        let mut dispatch = Dispatch {
            toolchain: &toolchain,
            jobs,
            until_idle: request.until_idle,
            give,
            results,
            in_hand: HashSet::new(),
            unsent: Vec::new(),
            done: BuiltForFleet::default(),
        };
        let name = WorkerName(format!("builder:{}", process_name()));
        let join = |fleet: &mut Fleet| fleet.join_builders(&name, env!("CARGO_PKG_VERSION"), &code);
        let mut line = FleetLine::open(&request.server, "it is tried again", Box::new(join))?;
        while !stop.load(Ordering::Relaxed) {
            dispatch.collect()?;
            match line.ask(listen, |fleet, number| dispatch.turn(fleet, *number))? {
                Some(true) => break,
                Some(false) => {}
                None => std::thread::sleep(BRIEFLY),
            }
        }
        Ok(BuiltForFleet { seconds: start.elapsed().as_secs_f64(), ..dispatch.done })
    })
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The loop of a compiling thread, until no order can come any more or it is told to end.
fn compile(
    toolchain: &Toolchain,
    folder: &Path,
    take: &Mutex<Receiver<Wanted>>,
    made: &Sender<Made>,
    end: &AtomicBool,
) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    loop {
        let next = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Wanted { key, source }) = next else { return };
        let to = folder.join(format!("{}.o", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let object = match toolchain.object_within(&source, &to, LIMIT, end) {
            Ok(Object::Made(_)) => std::fs::read(&to)
                .map(Some)
                .map_err(|e| MeasurerError::Folder { path: to.clone(), reason: e.to_string() }),
            Ok(_) => Ok(None),
            Err(e) => Err(e),
        };
        let _ = std::fs::remove_file(&to);
        // Where the other end is gone, the builder is ending.
        if made.send((key, object)).is_err() || end.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Hands orders to compiling threads, and to the server what they made.
struct Dispatch<'a> {
    toolchain: &'a Toolchain,
    /// Compiling threads.
    jobs: usize,
    until_idle: bool,
    give: Sender<Wanted>,
    results: Receiver<Made>,
    /// The keys of objects that are being made.
    in_hand: HashSet<String>,
    /// Objects that the server may not have yet.
    unsent: Vec<(String, Option<Vec<u8>>)>,
    done: BuiltForFleet,
}

impl Dispatch<'_> {
    /// Takes what was made.
    fn collect(&mut self) -> Result<(), Error> {
        while let Ok((key, object)) = self.results.try_recv() {
            self.in_hand.remove(&key);
            let object = object?;
            let count =
                if object.is_some() { &mut self.done.built } else { &mut self.done.refused };
            *count += 1;
            self.unsent.push((key, object));
        }
        Ok(())
    }

    /// Sends what was made and takes an order, or waits; true where nothing is left to do.
    fn turn(&mut self, fleet: &mut Fleet, number: i32) -> Result<bool, FleetError> {
        while let Some((key, object)) = self.unsent.last() {
            fleet.end_object(number, key, object.as_deref())?;
            self.unsent.pop();
        }
        let order = match self.in_hand.len() < self.jobs {
            true => fleet.take_build(number)?,
            false => None,
        };
        let Some(order) = order else {
            if !self.in_hand.is_empty() {
                std::thread::sleep(BRIEFLY);
                return Ok(false);
            }
            if self.until_idle && !fleet.has_slices(&toolchain_id(self.toolchain))? {
                return Ok(true);
            }
            fleet.wait_for_builds(POLL)?;
            return Ok(false);
        };
        // An order is a stranger's word: whatever it makes of the sketches ends with it.
        let source = catch_unwind(AssertUnwindSafe(|| source(&order))).ok().flatten();
        let key = source.as_ref().and_then(|s| self.toolchain.shared_object_key(s));
        let (Some(source), Some(key)) = (source, key) else {
            self.done.refused += 1;
            return Ok(false);
        };
        if !self.in_hand.contains(&key) && fleet.begin_object(number, &key, false)? {
            self.in_hand.insert(key.clone());
            // The receivers live as long as this.
            let _ = self.give.send(Wanted { key, source });
        }
        Ok(false)
    }
}

/// The kernel of an order; none where the order is of another program's making.
fn source(order: &BuildOrder) -> Option<KernelSource> {
    let target: Target = serde_json::from_str(order.machine.as_deref()?).ok()?;
    let workload = Workload::parse(&order.workload).ok().filter(|w| w.foreign.is_none())?;
    let task = Task::new(plain_name(&order.name), workload);
    if task.id != order.task {
        return None;
    }
    let (tunable, configuration) = order.candidate.split_once(": ")?;
    let all = sketches(&task.workload, &target);
    let tunable = find_tunable(&all, tunable)?;
    tunable.realize(&tunable.space().parse(configuration).ok()?, &symbol_of(&task)).ok()
}
