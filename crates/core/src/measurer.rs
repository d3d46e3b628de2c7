//! The trait [`Measurer`], which builds, checks and times kernels of one device, and its messages.
//! A measurer is given a task, measures jobs (kernels with the candidates that they were made
//! from), and compares two kernels side by side. The messages are data with a version, so a
//! measurer may live in another process or on another machine. The implementations (local CPU or
//! GPU, recorded, mock, piped) are in the crate `squall-measure`.

use crate::device::DeviceIdentity;
use crate::kernel::{Candidate, KernelSource, Reference};
use crate::trial::{CpuCost, Measurement, Outcome};
use crate::workload::Workload;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The version of the messages below. It grows whenever an older program would misread one.
pub const MESSAGE_VERSION: u32 = 1;

/// Measures kernels of one task at a time on one kind of device.
pub trait Measurer: Send {
    /// The device and toolchain within which times compare.
    fn identity(&self) -> &MeasurerIdentity;

    /// Whether jobs must carry their sources. A recorded device looks outcomes up by the
    /// candidates' texts and needs none.
    fn needs_source(&self) -> bool {
        true
    }

    /// Makes `task` the one that jobs are for. Returning to an earlier task costs little. An error
    /// leaves no task set.
    fn set_task(&mut self, task: &TaskSetup) -> Result<(), MeasurerError>;

    /// Measures `jobs`; `each` is called once for every result, in the order of the jobs, as soon
    /// as it is known. Once `stop` is set, jobs being measured are finished and reported, and the
    /// others are neither measured nor reported.
    ///
    /// A kernel that fails is an outcome. An error means that no job can be measured, and says what
    /// to mend; results reported before it are valid.
    fn run(
        &mut self,
        jobs: &[Job],
        stop: &AtomicBool,
        each: &mut dyn FnMut(JobResult),
    ) -> Result<(), MeasurerError>;

    /// Measures two kernels of the task side by side, until it is known whether the challenger is
    /// faster. Both must have passed [`Measurer::run`] before, here or elsewhere; if one of them
    /// fails now, that is [`MeasurerError::Contender`].
    fn rematch(&mut self, incumbent: &Job, challenger: &Job) -> Result<Rematch, MeasurerError>;

    /// CPU time spent so far on what belongs to no job: building and starting what runs kernels,
    /// references, inputs.
    fn overhead(&self) -> CpuCost;
}

/// The version that a message carries: a number in text, which is refused unless it is
/// [`MESSAGE_VERSION`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageVersion;

impl Serialize for MessageVersion {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u32(MESSAGE_VERSION)
    }
}

impl<'de> Deserialize<'de> for MessageVersion {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<MessageVersion, D::Error> {
        match u32::deserialize(d)? {
            MESSAGE_VERSION => Ok(MessageVersion),
            theirs => Err(D::Error::custom(MeasurerError::version(theirs))),
        }
    }
}

/// The device and the toolchain to which a measurer's times belong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasurerIdentity {
    /// See [`MESSAGE_VERSION`].
    pub version: MessageVersion,
    /// The device: times compare only within one. In messages it is the text that records have.
    #[serde(with = "device_text")]
    pub device: DeviceIdentity,
    /// What turns sources into machine code, as records name it behind the code generator, which
    /// the measurer does not know.
    pub toolchain: String,
}

impl MeasurerIdentity {
    /// A device and its toolchain.
    pub fn of(device: DeviceIdentity, toolchain: impl Into<String>) -> MeasurerIdentity {
        MeasurerIdentity { version: MessageVersion, device, toolchain: toolchain.into() }
    }

    /// The same by the device's name in records.
    pub fn new(device: impl AsRef<str>, toolchain: impl Into<String>) -> MeasurerIdentity {
        MeasurerIdentity::of(DeviceIdentity::parse(device.as_ref()), toolchain)
    }
}

/// A task, and what its kernels are checked against.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskSetup {
    /// See [`MESSAGE_VERSION`].
    pub version: MessageVersion,
    /// What is computed; in messages the workload's text.
    #[serde(with = "workload_text")]
    pub workload: Workload,
    /// What the results must agree with, and the inputs that are given.
    #[serde(with = "reference_text")]
    pub reference: Reference,
    /// The seed of the inputs that are not given.
    pub seed: u64,
}

impl TaskSetup {
    /// A task whose other inputs come from `seed`.
    pub fn new(workload: Workload, reference: impl Into<Reference>, seed: u64) -> TaskSetup {
        TaskSetup { version: MessageVersion, workload, reference: reference.into(), seed }
    }
}

/// The name of a candidate among those of its task: what records call it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CandidateText {
    /// The tunable's name.
    pub tunable: String,
    /// The configuration's text.
    pub configuration: String,
}

impl CandidateText {
    /// A candidate of these names.
    pub fn new(tunable: impl Into<String>, configuration: impl Into<String>) -> CandidateText {
        CandidateText { tunable: tunable.into(), configuration: configuration.into() }
    }
}

impl From<&Candidate> for CandidateText {
    fn from(c: &Candidate) -> CandidateText {
        CandidateText::new(&*c.tunable, c.configuration.to_string())
    }
}

impl fmt::Display for CandidateText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.tunable, self.configuration)
    }
}

/// A kernel to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// See [`MESSAGE_VERSION`].
    pub version: MessageVersion,
    /// What the kernel was made from.
    pub candidate: CandidateText,
    /// The kernel; may be left out where the measurer needs no sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<KernelSource>,
}

impl Job {
    /// A job with a source.
    pub fn new(candidate: CandidateText, source: KernelSource) -> Job {
        Job { version: MessageVersion, candidate, source: Some(source) }
    }

    /// A job for a measurer that needs no sources.
    pub fn without_source(candidate: CandidateText) -> Job {
        Job { version: MessageVersion, candidate, source: None }
    }

    /// The source, or the error of a measurer that cannot do without.
    pub fn required_source(&self) -> Result<&KernelSource, MeasurerError> {
        self.source
            .as_ref()
            .ok_or_else(|| MeasurerError::NoSource { candidate: self.candidate.to_string() })
    }
}

/// The result of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    /// See [`MESSAGE_VERSION`].
    pub version: MessageVersion,
    /// The job's position in its batch.
    pub job: usize,
    /// The outcome of the kernel.
    pub outcome: Outcome,
    /// What it cost; nothing of it is the search's.
    pub cost: CpuCost,
}

impl JobResult {
    /// The result of the job at position `job`.
    pub fn new(job: usize, outcome: Outcome, cost: CpuCost) -> JobResult {
        JobResult { version: MessageVersion, job, outcome, cost }
    }
}

/// The challenger's result against the incumbent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The challenger is faster by more than the minimum effect.
    Faster,
    /// Nothing that matters separates them: the incumbent stays.
    Tie,
    /// The challenger is slower.
    Slower,
}

impl Verdict {
    /// The spelling in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Tie => "tie",
            Verdict::Slower => "slower",
        }
    }
}

/// Two kernels measured side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rematch {
    /// See [`MESSAGE_VERSION`].
    pub version: MessageVersion,
    /// The incumbent's windows.
    pub incumbent: Measurement,
    /// The challenger's windows.
    pub challenger: Measurement,
    /// The challenger against the incumbent.
    pub verdict: Verdict,
    /// The challenger's time over the incumbent's: the centre of the pairs' ratios.
    pub ratio: f64,
    /// How sure the verdict is, from 0 to 1.
    pub confidence: f64,
    /// What it cost.
    pub cost: CpuCost,
}

/// Why nothing can be measured: a fault of the machine or of the set-up, which has to be mended
/// before measuring can go on. What a candidate does is an [`Outcome`] instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasurerError {
    /// There is no compiler.
    #[error("no C compiler: tried {}; install one (`apt-get install gcc`, `dnf install gcc`, `apk \
             add build-base`) or set CC", .tried.join(", "))]
    NoCompiler {
        /// The commands tried.
        tried: Vec<String>,
    },
    /// There is a compiler, but it cannot build the simplest library.
    #[error("the C compiler `{command}` cannot build a trivial program in {}: \
             {detail}", .folder.display())]
    BrokenCompiler {
        /// The command.
        command: String,
        /// Where it was to write.
        folder: PathBuf,
        /// What it said.
        detail: String,
    },
    /// The temporary folder cannot be used.
    #[error("{}: {reason} (TMPDIR names another place for temporary files)", .path.display())]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The device does not have what was asked for.
    #[error("{0}")]
    Device(String),
    /// The process that runs kernels does not start or does not answer as it should.
    #[error("the process that runs kernels: {0}")]
    Runner(String),
    /// The workload's reference cannot be built or run, so that no kernel can be checked.
    #[error("the reference of this task: {0}")]
    Reference(String),
    /// A kernel of a rematch failed, which both had passed before; the incumbent should stay.
    #[error("the {} of a rematch failed: {detail}",
        if *.challenger { "challenger" } else { "incumbent" })]
    Contender {
        /// Whether it was the challenger.
        challenger: bool,
        /// What happened.
        detail: String,
    },
    /// The user ended it before anything came of it.
    #[error("ended before anything came of it")]
    Stopped,
    /// A job has no source, and the measurer needs one.
    #[error("{candidate} has no source, without which it cannot be measured here")]
    NoSource {
        /// The candidate.
        candidate: String,
    },
    /// The other end of a connection writes messages of another version.
    #[error(
        "a message of measuring is of version {theirs}, and this program reads version \
             {ours}: use the same version of squall at both ends"
    )]
    Version {
        /// The message's version.
        theirs: u32,
        /// The version that this program reads.
        ours: u32,
    },
    /// The connection to another process or machine ended, or what came over it is no message.
    #[error("the connection to the measurer: {0}")]
    Connection(String),
}

impl MeasurerError {
    /// A fault of the temporary folder.
    pub fn folder(path: &Path, reason: &dyn fmt::Display) -> MeasurerError {
        MeasurerError::Folder { path: path.into(), reason: reason.to_string() }
    }

    /// What jobs meet before a task was set.
    pub fn no_task() -> MeasurerError {
        MeasurerError::Reference("no task was set, or setting it failed".into())
    }

    fn version(theirs: u32) -> MeasurerError {
        MeasurerError::Version { theirs, ours: MESSAGE_VERSION }
    }
}

/// A message as a line of JSON, without its end.
pub fn write_message<T: Serialize>(message: &T) -> Result<String, MeasurerError> {
    serde_json::to_string(message).map_err(|e| MeasurerError::Connection(e.to_string()))
}

/// Reads a message. Where the version is another one, that is the error, whatever else differs.
pub fn read_message<T: DeserializeOwned>(text: &str) -> Result<T, MeasurerError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let fault = |e: serde_json::Error| MeasurerError::Connection(format!("no message: {e}"));
    match serde_json::from_str::<Versioned>(text).map_err(fault)?.version {
        MESSAGE_VERSION => serde_json::from_str(text).map_err(fault),
        theirs => Err(MeasurerError::version(theirs)),
    }
}

/// A device in messages is its text.
mod device_text {
    use super::{Deserialize, Deserializer, DeviceIdentity, Serializer};

    pub fn serialize<S: Serializer>(d: &DeviceIdentity, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(d)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<DeviceIdentity, D::Error> {
        Ok(DeviceIdentity::parse(&String::deserialize(d)?))
    }
}

/// A workload in messages is its text, which can say infinities; JSON cannot.
mod workload_text {
    use super::{Deserialize, Deserializer, Serializer, Workload};
    use serde::de::Error;

    pub fn serialize<S: Serializer>(w: &Workload, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(w)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Workload, D::Error> {
        Workload::parse(&String::deserialize(d)?).map_err(D::Error::custom)
    }
}

/// A reference in messages: bytes are hexadecimal text.
mod reference_text {
    use super::{Deserialize, Deserializer, KernelSource, Reference, Serialize, Serializer};
    use serde::de::Error;

    #[derive(Serialize, Deserialize)]
    struct Message {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kernel: Option<KernelSource>,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        outputs: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        inputs: Vec<Option<String>>,
    }

    pub fn serialize<S: Serializer>(r: &Reference, s: S) -> Result<S::Ok, S::Error> {
        if r.judge.is_some() {
            let why = "results that a function judges are measured in its own process";
            return Err(serde::ser::Error::custom(why));
        }
        let inputs = r.inputs.iter().map(|i| i.as_ref().map(|bytes| hex(bytes))).collect();
        Message { kernel: r.kernel.clone(), outputs: hex(&r.outputs), inputs }.serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Reference, D::Error> {
        let m = Message::deserialize(d)?;
        let read = |text: &str| {
            bytes(text).ok_or_else(|| D::Error::custom("bytes are pairs of hexadecimal digits"))
        };
        let inputs = m.inputs.iter().map(|i| i.as_deref().map(read).transpose());
        let inputs =
            inputs.map(|i| i.map(|bytes| bytes.map(Into::into))).collect::<Result<_, _>>()?;
        Ok(Reference { kernel: m.kernel, outputs: read(&m.outputs)?.into(), inputs, judge: None })
    }

    fn hex(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |d: u8| char::from(DIGITS[usize::from(d)]);
        bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
    }

    fn bytes(text: &str) -> Option<Vec<u8>> {
        let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let byte = |&[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
        if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{FailStage, GpuState};
    use crate::units::{Bytes, Nanos};

    fn workload() -> Workload {
        let text = "workload pool\n\
            data X: f32[10, 100]\n\
            stage S: f32[i: 10] = max(k: 100) X[i, k]\n\
            stage Y: f32[i: 10] = max(S[i], -inf)\n\
            output Y\n";
        Workload::parse(text).unwrap()
    }

    fn source() -> KernelSource {
        KernelSource {
            language: crate::kernel::Language::C,
            source: "int k(void) { return 0; }\n".into(),
            symbol: "k".into(),
            prepared: Bytes(4),
            workspace: Bytes(8),
            openmp: true,
            full_optimisation: false,
            flags: vec!["-DX=1".into()],
            launches: Vec::new(),
        }
    }

    fn measurement() -> Measurement {
        let gpu = GpuState { device: 1, sm_mhz: 1980, memory_mhz: 3201, throttle: 4 };
        Measurement {
            samples: vec![Nanos(0.1), Nanos(1e9 / 3.0)],
            calls: 7,
            error: 1e-7,
            gpu: Some(gpu),
            pace: Some(1.25),
        }
    }

    fn cost() -> CpuCost {
        CpuCost { build: 0.1, measure: 1.0 / 3.0, search: 0.0 }
    }

    /// A message that was written and read is the same.
    fn same<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(message: &T) {
        let text = write_message(message).unwrap();
        assert!(!text.contains('\n'), "{text}");
        assert_eq!(read_message::<T>(&text).unwrap(), *message);
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        same(&MeasurerIdentity::new("a device of others", "gcc 13"));
        let cold = "cpu X, 32-byte vectors, 2 threads, cold caches";
        same(&MeasurerIdentity::new(cold, "gcc 13"));
        let text = write_message(&MeasurerIdentity::new(cold, "gcc 13")).unwrap();
        assert!(text.contains(cold), "{text}");
        same(&Job::new(CandidateText::new("tile", "x=1,y=2"), source()));
        same(&Job::without_source(CandidateText::new("tile", "")));
        same(&JobResult::new(3, Outcome::Measured(measurement()), cost()));
        let detail = "line\nbreak \"quoted\"".to_string();
        let failed = Outcome::Failed { stage: FailStage::WrongAnswer, detail };
        same(&JobResult::new(0, failed, cost()));
        same(&JobResult::new(0, Outcome::Infeasible("no".into()), CpuCost::default()));
        for verdict in [Verdict::Faster, Verdict::Tie, Verdict::Slower] {
            same(&Rematch {
                version: MessageVersion,
                incumbent: measurement(),
                challenger: measurement(),
                verdict,
                ratio: 0.9,
                confidence: 0.999,
                cost: cost(),
            });
            assert_eq!(write_message(&verdict).unwrap(), format!("{:?}", verdict.name()));
        }
    }

    #[test]
    fn a_task_is_read_as_it_was_written() {
        let given = Reference {
            kernel: None,
            outputs: [0u8, 15, 16, 255].as_slice().into(),
            inputs: vec![None, Some([7u8].as_slice().into()), Some([].as_slice().into())],
            judge: None,
        };
        for reference in [given, source().into()] {
            let task = TaskSetup::new(workload(), reference, u64::MAX);
            let read: TaskSetup = read_message(&write_message(&task).unwrap()).unwrap();
            assert_eq!(read.workload, task.workload);
            assert_eq!(read.reference.kernel, task.reference.kernel);
            assert_eq!(read.reference.outputs, task.reference.outputs);
            assert_eq!(read.reference.inputs, task.reference.inputs);
            assert_eq!(read.seed, task.seed);
        }
        let text = write_message(&TaskSetup::new(workload(), source(), 1)).unwrap();
        let odd = text.replace("\"seed\"", "\"reference\":{\"outputs\":\"0\"},\"seed\"");
        assert!(read_message::<TaskSetup>(&odd).is_err());
        let text = text.replace("output Y", "output Z");
        assert!(matches!(read_message::<TaskSetup>(&text), Err(MeasurerError::Connection(_))));
    }

    #[test]
    fn errors_are_read_as_they_were_written() {
        let errors = [
            MeasurerError::NoCompiler { tried: vec!["gcc".into(), "cc".into()] },
            MeasurerError::BrokenCompiler {
                command: "cc".into(),
                folder: "/tmp".into(),
                detail: "no".into(),
            },
            MeasurerError::folder(Path::new("/tmp/x"), &"full"),
            MeasurerError::Device("no GPU".into()),
            MeasurerError::Runner("died".into()),
            MeasurerError::Reference("wrong".into()),
            MeasurerError::Contender { challenger: true, detail: "crash".into() },
            MeasurerError::NoSource { candidate: "tile: x=1".into() },
            MeasurerError::version(9),
            MeasurerError::Connection("closed".into()),
        ];
        for e in errors {
            let text = write_message(&e).unwrap();
            let read: MeasurerError = serde_json::from_str(&text).unwrap();
            assert_eq!((&read, read.to_string()), (&e, e.to_string()));
        }
    }

    #[test]
    fn another_version_is_refused_by_both_numbers() {
        let text = write_message(&Job::without_source(CandidateText::new("a", "b"))).unwrap();
        let newer = text.replacen("\"version\":1", "\"version\":2", 1);
        assert_ne!(newer, text);
        // The version decides, even where the rest is not what this program expects.
        for text in [newer.as_str(), "{\"what\":[1],\"version\":2}"] {
            let error = read_message::<Job>(text).unwrap_err();
            assert_eq!(error, MeasurerError::Version { theirs: 2, ours: MESSAGE_VERSION });
            let words = error.to_string();
            assert!(words.contains("version 2") && words.contains("version 1"), "{words}");
        }
        // So does serde without our reader.
        let words = serde_json::from_str::<Job>(&newer).unwrap_err().to_string();
        assert!(words.contains("version 2") && words.contains("version 1"), "{words}");
        assert!(matches!(read_message::<Job>("{}"), Err(MeasurerError::Connection(_))));
        assert!(matches!(read_message::<Job>("hello"), Err(MeasurerError::Connection(_))));
    }

    #[test]
    fn a_job_without_a_source_says_which() {
        let job = Job::without_source(CandidateText::new("tile", "x=1"));
        let words = job.required_source().unwrap_err().to_string();
        assert!(words.starts_with("tile: x=1 has no source"), "{words}");
        assert!(Job::new(job.candidate, source()).required_source().is_ok());
    }
}
