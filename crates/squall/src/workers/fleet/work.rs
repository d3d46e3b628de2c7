//! A worker of a fleet. It leases a slice (some trials of one task) from the server, tunes it into
//! its own store by the same session as `squall tune`, and sends the new records. If the server is
//! down, the slice goes on and its records are sent once the server is back. `squall worker` runs
//! it.

use super::Fleet;
use super::class::{boot_of, class_of, this_boot};
use super::lease_renewal::LeaseRenewal;
use super::line::FleetLine;
use super::objects::FleetObjects;
use crate::base::error::Error;
use crate::decide::tune::tune;
use crate::input::input_request::InputRequest;
use crate::target::target_context::{Context, TargetContext};
use crate::target::target_request::TargetRequest;
use crate::task::event::{Event, Listen};
use crate::tuning::report::{Report, StopReason};
use crate::tuning::settings::BudgetRequest;
use crate::tuning::tune_request::TuneRequest;
use squall_core::{Caches, CpuCost, FailStage, Outcome, Record, RecordKind, TaskId};
use squall_fleet::{DeviceOfMachine, Ended, FleetError, Lease, Mark, Worker, WorkerName};
use squall_measure::TemporaryFolder;
use squall_records::{Query, Store};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A lease that is not renewed for this long may be given to another worker.
const LEASE: Duration = Duration::from_secs(60);
/// Records are sent once this many are waiting, or after this time.
const SHIPMENT: (usize, Duration) = (16, Duration::from_secs(5));
/// How long an idle worker waits for a notification from the server before it asks.
const POLL: Duration = Duration::from_secs(2);
/// The share of a task's time that a slice is expected to gain where the last one gained nothing.
const LEAST_GAIN: f64 = 0.01;

/// How a machine works for a fleet.
#[derive(Clone, Debug)]
pub struct WorkerRequest {
    /// The server's address.
    pub server: String,
    /// The own store, in which everything is kept before it is sent.
    pub store: PathBuf,
    /// The device that kernels are tuned for.
    pub target: TargetRequest,
    /// Threads of a kernel.
    pub threads: usize,
    /// What the caches hold when a call is timed.
    pub caches: Caches,
    /// Of everything random.
    pub seed: u64,
    /// Whether it ends where no slice is left to do.
    pub until_idle: bool,
    /// How long a lease holds without being renewed.
    pub lease: Duration,
    /// The users of the server whose builders' objects are run, beside those of the own user's.
    pub trusted_builders: Vec<String>,
}

impl WorkerRequest {
    /// A worker with one thread that waits for work for ever.
    pub fn new(server: impl Into<String>, store: impl Into<PathBuf>) -> WorkerRequest {
        WorkerRequest {
            server: server.into(),
            store: store.into(),
            target: TargetRequest::Cpu,
            threads: 1,
            caches: Caches::Warm,
            seed: 0,
            until_idle: false,
            lease: LEASE,
            trusted_builders: Vec::new(),
        }
    }
}

/// The result of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worked {
    /// Slices.
    pub slices: u64,
    /// Trials.
    pub trials: u64,
    /// Records that were new to the server.
    pub shipped: u64,
    /// Objects that builders of the fleet had made.
    pub fetched: u64,
    /// Seconds that were spent on the server.
    pub server_seconds: f64,
    /// Seconds in all.
    pub seconds: f64,
}

/// Works until `stop` is set, or no slice is left and that is enough.
///
/// # Errors
/// Where the machine cannot measure, the own store cannot be kept, or the fleet refuses the worker.
pub fn work(
    context: &Context,
    request: &WorkerRequest,
    stop: &AtomicBool,
    listen: &mut Listen<'_>,
) -> Result<Worked, Error> {
    let start = Instant::now();
    let at = context.target(request.target, request.threads)?.with_caches(request.caches);
    let mut line = Line::new(request, &at)?;
    line.unsent = own_records(&Store::open(&request.store)?, &at)?;
    // Kernels of GPUs are compiled where they run.
    let _asking = at.gpus.is_empty().then(|| Asking::begin(&at, &line.objects));
    while !stop.load(Ordering::Relaxed) {
        line.send(true, listen)?;
        match line.claim(listen)? {
            Some(lease) => {
                let slice = Slice { context, request, at: &at, lease: &lease };
                slice.run(&mut line, stop, listen)?;
            }
            None if request.until_idle && line.is_done(listen)? => break,
            None => {
                line.tell_of_others(listen)?;
                line.rest(stop);
            }
        }
    }
    line.send(true, listen)?;
    line.worked.seconds = start.elapsed().as_secs_f64();
    line.worked.fetched = line.objects.fetched();
    Ok(line.worked)
}

/// As long as this lives, the compiler's cache asks the fleet for objects.
struct Asking<'a>(&'a TargetContext);

impl<'a> Asking<'a> {
    fn begin(at: &'a TargetContext, objects: &Arc<FleetObjects>) -> Asking<'a> {
        at.toolchain.objects().ask_others(Some(objects.clone()));
        Asking(at)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.toolchain.objects().ask_others(None);
    }
}

/// What the own store holds of this place: an earlier process may not have sent all of it.
fn own_records(store: &Store, at: &TargetContext) -> Result<Vec<Record>, Error> {
    let query = Query {
        device: Some(at.device_name()),
        toolchain: Some(at.place.toolchain.clone()),
        ..Query::default()
    };
    Ok(store.query(&query)?)
}

/// Host, boot, process and start: no other process ever has this name.
pub(super) fn process_name() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let host = read("/proc/sys/kernel/hostname");
    let boot: String = this_boot().chars().take(8).collect();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{host}:{boot}:{}:{}", std::process::id(), since.as_millis())
}

/// A task's name as that of a file, which records keep.
pub(super) fn plain_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.chars().map(plain).take(100).collect()
}

/// A worker as one connection knows it.
struct Joined {
    worker: Worker,
    /// Up to when each task was pulled. What was on its way when an earlier connection broke may
    /// not have arrived.
    marks: HashMap<String, Mark>,
    /// Whether builders know which code is wanted.
    is_described: bool,
}

/// The line to the server, which may be down for a while.
struct Line<'a> {
    request: &'a WorkerRequest,
    /// Which code builders are to make, and for which machine, as JSON; none of a GPU's, and
    /// where the compiler's files are this machine's own.
    built_for: Option<(String, String)>,
    /// The objects that builders made.
    objects: Arc<FleetObjects>,
    fleet: FleetLine<'a, Joined>,
    /// Records that the server may not have yet.
    unsent: Vec<Record>,
    sent: Instant,
    has_told_of_others: bool,
    worked: Worked,
}

impl<'a> Line<'a> {
    /// The first connection: an address that is wrong shows here.
    fn new(request: &'a WorkerRequest, at: &TargetContext) -> Result<Line<'a>, Error> {
        let code = at.toolchain.shared_code().filter(|_| at.gpus.is_empty());
        let built_for = code.zip(serde_json::to_string(&at.target).ok());
        let first = class_of(&mut Fleet::connect(&request.server)?, at)?;
        let (boot, device, toolchain) = (boot_of(at), at.device_name(), at.place.toolchain.clone());
        let name = WorkerName(process_name());
        let join = move |fleet: &mut Fleet| {
            let device = DeviceOfMachine { boot: &boot, device: &device, toolchain: &toolchain };
            let class = match fleet.class_since_boot(device)? {
                Some(class) => class,
                // A system that does not say which run of it this is cannot be known again.
                None if boot.is_empty() => first,
                None => {
                    let forgotten = "the fleet forgot this machine: start the worker anew";
                    return Err(FleetError::Nothing(forgotten.into()));
                }
            };
            let worker = fleet.join(name.clone(), class, env!("CARGO_PKG_VERSION"))?;
            Ok(Joined { worker, marks: HashMap::new(), is_described: false })
        };
        let meanwhile = "what is measured stays in the own store";
        Ok(Line {
            request,
            built_for,
            objects: Arc::new(FleetObjects::new(&request.server, &request.trusted_builders)),
            fleet: FleetLine::open(&request.server, meanwhile, Box::new(join))?,
            unsent: Vec::new(),
            sent: Instant::now(),
            has_told_of_others: false,
            worked: Worked::default(),
        })
    }

    fn is_connected(&mut self) -> bool {
        self.fleet.joined().is_some()
    }

    /// Asks the server; none where it cannot be reached now, which is said once.
    fn ask<T>(
        &mut self,
        listen: &mut Listen<'_>,
        question: impl FnOnce(&mut Fleet, &mut Joined) -> Result<T, FleetError>,
    ) -> Result<Option<T>, Error> {
        let begin = Instant::now();
        let answer = self.fleet.ask(listen, question);
        self.worked.server_seconds += begin.elapsed().as_secs_f64();
        Ok(answer?)
    }

    fn claim(&mut self, listen: &mut Listen<'_>) -> Result<Option<Lease>, Error> {
        let patience = self.request.lease;
        Ok(self.ask(listen, |fleet, j| fleet.claim(&j.worker, patience))?.flatten())
    }

    /// Whether the server has all of what was measured and no slice that will be this worker's.
    fn is_done(&mut self, listen: &mut Listen<'_>) -> Result<bool, Error> {
        if !self.is_connected() || !self.unsent.is_empty() {
            return Ok(false);
        }
        let left = self.ask(listen, |fleet, j| fleet.is_work_left(j.worker.id, j.worker.class))?;
        Ok(left == Some(false))
    }

    /// Says once for which devices there is work while there is none for this one.
    fn tell_of_others(&mut self, listen: &mut Listen<'_>) -> Result<(), Error> {
        if self.has_told_of_others {
            return Ok(());
        }
        let others = self
            .ask(listen, |fleet, j| Ok((j.worker.class, fleet.work_of_others(j.worker.class)?)))?;
        let Some((class, others)) = others.filter(|(_, o)| !o.is_empty()) else { return Ok(()) };
        self.has_told_of_others = true;
        let names: Vec<String> = others.iter().map(|(id, d)| format!("{id} ({d})")).collect();
        listen(Event::Note(format!(
            "no work for this device, class {class}; there is some for {}: `squall fleet submit \
             --class {class}` puts in work for this one",
            names.join(", ")
        )));
        Ok(())
    }

    /// Sends what the server may not have: all of it, or where it is due.
    fn send(&mut self, is_all: bool, listen: &mut Listen<'_>) -> Result<(), Error> {
        let is_due = self.unsent.len() >= SHIPMENT.0 || self.sent.elapsed() >= SHIPMENT.1;
        if self.unsent.is_empty() || !(is_all || is_due) {
            return Ok(());
        }
        let records = std::mem::take(&mut self.unsent);
        self.sent = Instant::now();
        let shipped =
            self.ask(listen, |fleet, j| fleet.ship(j.worker.id, j.worker.class, &records));
        match shipped {
            Ok(Some(new)) => self.worked.shipped += new,
            Ok(None) => self.unsent = records,
            Err(e) => {
                self.unsent = records;
                return Err(e);
            }
        }
        Ok(())
    }

    /// Tells builders what is to be compiled next. Work goes on without them.
    fn order(&mut self, task: TaskId, candidates: &[String], listen: &mut Listen<'_>) {
        let Some((code, machine)) = self.built_for.take() else { return };
        let trusted = &self.request.trusted_builders;
        let builders = self.ask(listen, |fleet, j| {
            if !j.is_described {
                fleet.describe(&j.worker, &code, &machine)?;
                j.is_described = true;
            }
            let are_there = fleet.order_builds(&j.worker, task, candidates, trusted)?;
            Ok(are_there.then_some(j.worker.id))
        });
        if builders.is_ok() {
            self.built_for = Some((code, machine));
        }
        let builders = builders.unwrap_or_else(|e| {
            listen(Event::Trouble(format!("{e}; this worker goes on without builders")));
            None
        });
        self.objects.ask_as(builders.flatten());
    }

    /// Waits until there may be work.
    fn rest(&mut self, stop: &AtomicBool) {
        let end = Instant::now() + POLL;
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            let most = Duration::from_millis(200);
            let heard = match self.fleet.joined() {
                Some((fleet, _)) => fleet.wait_for_work(most).unwrap_or(false),
                None => {
                    std::thread::sleep(most);
                    false
                }
            };
            if heard {
                break;
            }
        }
    }
}

/// A slice that was leased.
struct Slice<'a> {
    context: &'a Context,
    request: &'a WorkerRequest,
    at: &'a TargetContext,
    lease: &'a Lease,
}

impl Slice<'_> {
    /// Pulls what is known, tunes, gives the slice back.
    fn run(
        &self,
        line: &mut Line<'_>,
        stop: &AtomicBool,
        listen: &mut Listen<'_>,
    ) -> Result<(), Error> {
        let lease = self.lease;
        let before = {
            let store = Store::open(&self.request.store)?;
            self.learn(&store, line, listen)?;
            self.best(&store)?
        };
        let mut trials = 0;
        let tuned = self.tune(line, stop, listen, &mut trials);
        line.worked.slices += 1;
        line.worked.trials += trials;
        // What this slice wanted is wanted no more.
        line.order(lease.task, &[], listen);
        // A store that is a folder shows what it held when it was opened.
        let store = Store::open(&self.request.store)?;
        // Rematches too; what was sent before changes nothing.
        line.unsent.extend(self.rematches(&store)?);
        line.send(true, listen)?;
        let ended = match &tuned {
            Ok(report) => {
                let task = report.tasks.first();
                let is_over =
                    |s: StopReason| matches!(s, StopReason::Exhausted | StopReason::Unmeasurable);
                let failure = match task.map(|t| t.stop) {
                    Some(StopReason::Unmeasurable) => Some("it cannot be measured here".into()),
                    _ => None,
                };
                Ended {
                    trials,
                    gain: self.gain(before, self.best(&store)?),
                    is_exhausted: task.is_some_and(|t| is_over(t.stop)),
                    failure,
                }
            }
            Err(e) => Ended { trials, failure: Some(e.to_string()), ..Ended::default() },
        };
        line.ask(listen, |fleet, _| fleet.finish(lease, &ended))?;
        match tuned {
            // What a server sends may be no workload; a store that cannot be kept ends the worker.
            Ok(_) | Err(Error::Input { .. } | Error::Nothing(_)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Takes in what others know of the task, and failures of candidates that killed workers.
    fn learn(
        &self,
        store: &Store,
        line: &mut Line<'_>,
        listen: &mut Listen<'_>,
    ) -> Result<(), Error> {
        let task = self.lease.task;
        let mark = |j: &Joined| j.marks.get(&task.to_string()).copied().unwrap_or_default();
        let pulled = line.ask(listen, |fleet, j| fleet.pull(task, j.worker.class, mark(j)))?;
        if let Some((records, next)) = pulled {
            let taken = store.append_merged(records.into_iter().map(Ok))?;
            if let Some((_, joined)) = line.fleet.joined() {
                joined.marks.insert(task.to_string(), next);
            }
            if taken.refused > 0 {
                listen(Event::Trouble(format!(
                    "{} records of {} on the server cannot be right and were left out: {}",
                    taken.refused,
                    self.lease.name,
                    taken.reasons.join("; ")
                )));
            }
        }
        for culprit in &self.lease.culprits {
            let Some((tunable, configuration)) = culprit.split_once(": ") else { continue };
            let record = Record {
                kind: RecordKind::Trial,
                task,
                name: self.lease.name.clone(),
                workload: self.lease.workload.clone(),
                device: self.at.device_name(),
                toolchain: self.at.place.toolchain.clone(),
                tunable: tunable.into(),
                configuration: configuration.into(),
                outcome: Outcome::Failed {
                    stage: FailStage::Launch,
                    detail: "two workers died while it ran".into(),
                },
                cost: CpuCost::default(),
                seed: self.request.seed,
                time: crate::base::clock::now(),
            };
            let known = store.trials(task, &record.device, &record.toolchain)?;
            let identity = record.identity();
            if !known.iter().any(|r| r.identity() == identity) {
                line.unsent.push(store.append_latest(record)?);
                listen(Event::Trouble(format!("{culprit} of {} kills workers", self.lease.name)));
            }
        }
        Ok(())
    }

    /// Tunes. The lease is renewed at each trial by the thread that measures, and between trials by
    /// another one, as long as the first is not silent for longer than any work may take.
    fn tune(
        &self,
        line: &mut Line<'_>,
        stop: &AtomicBool,
        listen: &mut Listen<'_>,
        trials: &mut u64,
    ) -> Result<Report, Error> {
        let folder = TemporaryFolder::new("slice")?;
        let file = folder.path().join(format!("{}.workload", plain_name(&self.lease.name)));
        std::fs::write(&file, &self.lease.workload)
            .map_err(|source| Error::Write { path: file.clone(), source })?;
        let budget =
            BudgetRequest { trials_per_task: Some(self.lease.trials), ..BudgetRequest::default() };
        let input = InputRequest::new(file.to_string_lossy());
        let request = TuneRequest {
            target: self.request.target,
            threads: self.request.threads,
            caches: self.request.caches,
            seed: self.request.seed,
            inference: None,
            ..TuneRequest::new(input, &self.request.store, budget)
        };
        // The slice ends with the worker, and where the lease is another's.
        let ended = AtomicBool::new(false);
        let is_over = AtomicBool::new(false);
        let heard_at = Mutex::new(Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (server, patience) = (&self.request.server, self.request.lease);
                let mut renewal = LeaseRenewal::new(server, self.lease, patience, &heard_at);
                while !is_over.load(Ordering::Relaxed) {
                    if stop.load(Ordering::Relaxed) {
                        ended.store(true, Ordering::Relaxed);
                    }
                    renewal.renew_where_due();
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let (asked, next, failure) = (Vec::new(), 0, None);
            let mut heard = Heard { slice: self, line, heard_at: &heard_at, asked, next, failure };
            let report = tune(self.context, &request, &ended, &mut |event| {
                if let Event::Trial { .. } = event {
                    *trials += 1;
                }
                if !heard.hear(&event, listen) {
                    ended.store(true, Ordering::Relaxed);
                }
                listen(event);
            });
            is_over.store(true, Ordering::Relaxed);
            match heard.failure {
                Some(e) => Err(e),
                None => report,
            }
        })
    }

    /// The task's records of this place that are no trials: trials are sent as they are made.
    fn rematches(&self, store: &Store) -> Result<Vec<Record>, Error> {
        let known = store.query(&self.query())?;
        Ok(known.into_iter().filter(|r| r.kind != RecordKind::Trial).collect())
    }

    fn query(&self) -> Query {
        Query {
            device: Some(self.at.device_name()),
            toolchain: Some(self.at.place.toolchain.clone()),
            ..Query::task(self.lease.task)
        }
    }

    /// The task's best time here, in nanoseconds.
    fn best(&self, store: &Store) -> Result<Option<f64>, Error> {
        let best = store.best(&self.query())?;
        Ok(best.first().and_then(|r| r.outcome.time()).map(|t| t.0))
    }

    /// What the next slice may gain in seconds an inference: what this one did, or a little.
    fn gain(&self, before: Option<f64>, after: Option<f64>) -> f64 {
        let Some(after) = after else { return 0.0 };
        let gained = before.map_or(0.0, |b| (b - after).max(0.0));
        self.lease.count as f64 * gained.max(LEAST_GAIN * after) * 1e-9
    }
}

/// Hears a session and tells the server.
struct Heard<'h, 'a, 's> {
    slice: &'h Slice<'s>,
    line: &'h mut Line<'a>,
    /// When it was heard of last.
    heard_at: &'h Mutex<Instant>,
    /// The candidates of the batch that is measured, in its order.
    asked: Vec<String>,
    /// Which of them is next.
    next: usize,
    failure: Option<Error>,
}

impl Heard<'_, '_, '_> {
    /// False where the slice is not this worker's any more.
    fn hear(&mut self, event: &Event<'_>, listen: &mut Listen<'_>) -> bool {
        match event {
            Event::Batch { candidates } => {
                self.asked = candidates.to_vec();
                self.next = 0;
                self.line.order(self.slice.lease.task, &self.asked, listen);
            }
            Event::Trial { record, .. } => {
                self.line.unsent.push((*record).clone());
                let name = format!("{}: {}", record.tunable, record.configuration);
                if let Some(place) = self.asked.iter().position(|c| *c == name) {
                    self.next = self.next.max(place + 1);
                }
            }
            Event::Rematch { .. } => {}
            _ => return true,
        }
        let (lease, patience) = (self.slice.lease, self.slice.request.lease);
        let running = self.asked.get(self.next).map(String::as_str);
        let told = self
            .line
            .send(false, listen)
            .and_then(|()| self.line.ask(listen, |f, _| f.renew(lease, running, patience)));
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        match told {
            Ok(is_ours) => is_ours.unwrap_or(true),
            Err(e) => {
                self.failure = Some(e);
                false
            }
        }
    }
}
