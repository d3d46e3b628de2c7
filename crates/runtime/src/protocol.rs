//! The protocol between a measurer and the runner (the C process in which kernels run): requests
//! and replies as types, and as lines of text over pipes. `host/conversation.c` is the runner's
//! end. Both ends state their version and refuse another one.

use crate::plan::HostPlan;
use squall_core::GpuState;
use std::fmt::Write as _;

/// The version of the messages. A runner of another version is refused, and refuses its host.
pub const VERSION: u32 = 1;

/// The role in which the runner is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// It runs kernels, pinned to cores.
    Kernels {
        /// The cores.
        cores: Vec<usize>,
        /// The device and the clock that times kernels.
        on: Clock,
    },
    /// It describes a GPU.
    Describe(u32),
    /// It measures a GPU's roof (peak and bandwidths).
    Roof {
        /// The driver's number of the GPU.
        ordinal: u32,
        /// As `sm_90a`.
        architecture: String,
    },
    /// It compiles for GPUs of an architecture.
    Compiler(String),
}

/// The device that kernels run on, and the clock that times them there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// One thread, timed by its CPU time.
    CpuTime,
    /// Several threads, timed by the clock on the wall.
    Wall,
    /// The GPU of this number.
    Gpu(u32),
}

impl Start {
    /// The runner's command line, behind its name.
    pub fn arguments(&self) -> Vec<String> {
        let words = match self {
            Start::Kernels { cores, on } => {
                let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
                let on = match on {
                    Clock::CpuTime => "cpu".into(),
                    Clock::Wall => "wall".into(),
                    Clock::Gpu(n) => format!("gpu:{n}"),
                };
                vec!["kernels".into(), cores.join(","), on]
            }
            Start::Describe(n) => vec!["describe".into(), n.to_string()],
            Start::Roof { ordinal, architecture } => {
                vec!["roof".into(), ordinal.to_string(), architecture.clone()]
            }
            Start::Compiler(architecture) => vec!["nvrtc".into(), architecture.clone()],
        };
        std::iter::once(VERSION.to_string()).chain(words).collect()
    }
}

/// A request of the measurer.
#[derive(Clone, Debug, PartialEq)]
pub enum Request<'a> {
    /// Makes inputs, and lets the plan's kernel compute the reference outputs, which go to a file;
    /// they are read from there where the plan has no kernel.
    Task {
        /// Of the inputs.
        seed: u64,
        /// The file's name.
        file: &'a str,
        /// The tensors, and the reference.
        plan: &'a HostPlan,
    },
    /// Lets a kernel make the pace until the next task or duel.
    Pace {
        /// The kernel.
        plan: &'a HostPlan,
        /// See [`squall_core::Workload::tolerance`].
        tolerance: f64,
        /// Bytes walked through before each call; 0 for none.
        flush: u64,
    },
    /// Checks and times a kernel.
    Run {
        /// The kernel.
        plan: &'a HostPlan,
        /// See [`squall_core::Workload::tolerance`].
        tolerance: f64,
        /// Slower ones, in ns, are timed in two windows only; 0 for none.
        limit: f64,
        /// Bytes walked through before each call; 0 for none.
        flush: u64,
    },
    /// Checks two kernels, and keeps them ready.
    Duel {
        /// The kernels.
        plans: [&'a HostPlan; 2],
        /// See [`squall_core::Workload::tolerance`].
        tolerance: f64,
        /// Bytes walked through before each call; 0 for none.
        flush: u64,
    },
    /// Times this many pairs of windows of the two kernels.
    Pairs(usize),
    /// Compiles CUDA C to a cubin.
    Compile {
        /// The source's file.
        from: &'a str,
        /// The cubin's.
        to: &'a str,
        /// The file of options and names, if there is one.
        with: Option<&'a str>,
    },
}

impl Request<'_> {
    /// The files that it names: libraries, inputs, and that of the reference outputs, which may be
    /// the runner's to write.
    pub fn files(&self) -> Vec<&str> {
        let (own, plans): (&[&str], Vec<&HostPlan>) = match self {
            Request::Task { file, plan, .. } => (std::slice::from_ref(file), vec![plan]),
            Request::Pace { plan, .. } | Request::Run { plan, .. } => (&[], vec![plan]),
            Request::Duel { plans, .. } => (&[], plans.to_vec()),
            Request::Pairs(_) | Request::Compile { .. } => (&[], Vec::new()),
        };
        let mut files = own.to_vec();
        for plan in plans {
            files.extend(plan.buffers.iter().filter_map(|b| b.file.as_deref()));
            files.extend(plan.kernels.iter().filter_map(|k| k.library.as_deref()));
        }
        files
    }

    /// The request as the runner reads it: a line, and the plans behind it.
    pub fn encode(&self) -> String {
        let (mut line, plans): (String, Vec<&HostPlan>) = match self {
            Request::Task { seed, file, plan } => {
                (format!("task seed={seed} file={file}"), vec![plan])
            }
            Request::Pace { plan, tolerance, flush } => {
                (format!("pace tolerance={tolerance:e} flush={flush}"), vec![plan])
            }
            Request::Run { plan, tolerance, limit, flush } => {
                let line = format!("run tolerance={tolerance:e} limit={limit:.0} flush={flush}");
                (line, vec![plan])
            }
            Request::Duel { plans, tolerance, flush } => {
                (format!("duel tolerance={tolerance:e} flush={flush}"), plans.to_vec())
            }
            Request::Pairs(count) => (format!("pairs count={count}"), Vec::new()),
            Request::Compile { from, to, with } => {
                let with = with.map_or_else(String::new, |w| format!(" with={w}"));
                (format!("compile from={from} to={to}{with}"), Vec::new())
            }
        };
        let texts: Vec<String> = plans.iter().map(|p| p.to_string()).collect();
        texts.iter().for_each(|t| _ = write!(line, " plan={}", t.len()));
        line + "\n" + &texts.concat()
    }
}

/// Which of two kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

/// The part that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Loading, launching or a kernel's error code.
    Launch,
    /// The result.
    Wrong,
    /// Memory beside a buffer, which was written to.
    Damage,
    /// There was not enough memory.
    Memory,
    /// A file.
    File,
    /// The GPU, whose context is lost.
    Fault,
    /// The device or what it needs: it cannot be used.
    Device,
    /// The compiler refuses the source.
    Build,
    /// The plan: sizes or launches that cannot be.
    Plan,
    /// The protocol's version.
    Version,
}

const PLACES: [(&str, Place); 10] = [
    ("launch", Place::Launch),
    ("wrong", Place::Wrong),
    ("damage", Place::Damage),
    ("memory", Place::Memory),
    ("file", Place::File),
    ("fault", Place::Fault),
    ("device", Place::Device),
    ("build", Place::Build),
    ("plan", Place::Plan),
    ("version", Place::Version),
];

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Where.
    pub place: Place,
    /// Of a duel: which kernel.
    pub side: Option<Side>,
    /// In words.
    pub message: String,
}

/// The times of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The largest error, relative to the largest value.
    pub error: f64,
    /// Calls of a window.
    pub calls: u64,
    /// Of each window, the time of a call in ns.
    pub samples: Vec<f64>,
    /// The pacemaker's time meanwhile, in ns.
    pub pace: Option<f64>,
    /// The GPU as the kernel left it.
    pub gpu: Option<GpuState>,
}

/// Two kernels that stand ready.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ready {
    /// Their errors.
    pub errors: [f64; 2],
    /// Calls of a window.
    pub calls: [u64; 2],
    /// The time of a call in ns.
    pub nanos: [f64; 2],
}

/// A GPU, as its driver describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuDescription {
    /// How many the driver sees.
    pub count: u32,
    /// The highest CUDA version that the driver understands, as 13000.
    pub driver: u32,
    /// NVRTC's version.
    pub nvrtc: String,
    /// The limits.
    pub limits: squall_core::Gpu,
    /// The clocks now.
    pub now: GpuState,
    /// Most MHz of the multiprocessors.
    pub most_sm_mhz: u32,
    /// Most MHz of memory.
    pub most_memory_mhz: u32,
    /// Degrees Celsius.
    pub degrees: u32,
    /// Watts.
    pub watts: u32,
    /// Its name.
    pub name: String,
}

/// A GPU's roof (peak and bandwidths).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuRoof {
    /// Multiply-adds, two operations each.
    pub gflops: f64,
    /// Copying within its memory.
    pub memory_gbs: f64,
    /// Reading its second-level cache.
    pub l2_gbs: f64,
    /// The clocks meanwhile.
    pub state: GpuState,
}

/// A reply of the runner.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It was started, and speaks this version.
    Ready(u32),
    /// A task was set.
    Task {
        /// The time of a call of the reference.
        seconds: f64,
        /// How many of the expected numbers are none or infinite.
        nonfinite: u64,
    },
    /// A pacemaker stands ready; the time of its call in ns.
    Paced(f64),
    /// A kernel was right, and timed.
    Measured(Measured),
    /// Two kernels stand ready.
    Duel(Ready),
    /// The times of both kernels, pair by pair.
    Pairs(Vec<[f64; 2]>),
    /// A source was compiled; the functions' names in the cubin, where they were asked for.
    Built(Vec<String>),
    /// The description of a GPU.
    Device(Box<GpuDescription>),
    /// A GPU's roof (peak and bandwidths).
    Roof(GpuRoof),
    /// It did not succeed.
    Failed(Failure),
}

/// A line of the runner's.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// An answer, and the CPU seconds that the request took.
    Reply(Reply, f64),
    /// It dies: by what.
    Crash(String),
    /// A reply that says none of the above.
    Strange(String),
    /// No line of the runner's: kernels write to descriptors that they did not open.
    Noise,
}

impl Line {
    /// Parses a line.
    pub fn parse(line: &str) -> Line {
        let line = line.trim();
        let (cpu, words) = line.split_once(' ').unwrap_or(("", line));
        let Ok(cpu) = cpu.parse::<f64>() else { return Line::Noise };
        if let Some(how) = words.strip_prefix("crash message=") {
            return Line::Crash(how.into());
        }
        reply(words).map_or_else(|| Line::Strange(words.into()), |r| Line::Reply(r, cpu))
    }
}

/// The `key=value` words of a reply; `message` and `name` reach to the end of the line.
struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        self.0.split(' ').find_map(|w| w.strip_prefix(key)?.strip_prefix('='))
    }

    fn rest(&self, key: &str) -> Option<&'a str> {
        self.0.split_once(&format!(" {key}=")).map(|(_, rest)| rest)
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.text(key)?.parse().ok()
    }

    fn list<T: std::str::FromStr>(&self, key: &str) -> Option<Vec<T>> {
        self.text(key)?.split(',').map(|n| n.parse().ok()).collect()
    }

    fn pair<T: std::str::FromStr + Copy>(&self, key: &str) -> Option<[T; 2]> {
        self.list(key)?.try_into().ok()
    }

    fn gpu(&self) -> Option<GpuState> {
        let [device, sm_mhz, memory_mhz, throttle] = self.list("gpu")?.try_into().ok()?;
        Some(GpuState { device, sm_mhz, memory_mhz, throttle })
    }
}

fn reply(words: &str) -> Option<Reply> {
    let (verb, _) = words.split_once(' ').unwrap_or((words, ""));
    let f = Fields(words);
    Some(match verb {
        "ready" => Reply::Ready(f.number("version")?),
        "task" => Reply::Task { seconds: f.number("seconds")?, nonfinite: f.number("nonfinite")? },
        "paced" => Reply::Paced(f.number("nanos")?),
        "measured" => Reply::Measured(Measured {
            error: f.number("error")?,
            calls: f.number("calls")?,
            samples: f.list("samples")?,
            pace: f.number("pace"),
            gpu: f.gpu(),
        }),
        "duel" => Reply::Duel(Ready {
            errors: f.pair("errors")?,
            calls: f.pair("calls")?,
            nanos: f.pair("nanos")?,
        }),
        "pairs" => Reply::Pairs(pairs(&f)?),
        "built" => {
            let names = words.split(' ').filter_map(|w| w.strip_prefix("name="));
            Reply::Built(names.map(Into::into).collect())
        }
        "device" => Reply::Device(Box::new(device(&f)?)),
        "roof" => Reply::Roof(GpuRoof {
            gflops: f.number("gflops")?,
            memory_gbs: f.number("memory_gbs")?,
            l2_gbs: f.number("l2_gbs")?,
            state: f.gpu()?,
        }),
        "failed" => {
            let place = f.text("where")?;
            let side = f.text("side").map(|s| if s == "a" { Side::A } else { Side::B });
            let place = PLACES.iter().find(|p| p.0 == place)?.1;
            Reply::Failed(Failure { place, side, message: f.rest("message")?.trim().into() })
        }
        _ => return None,
    })
}

fn pairs(f: &Fields<'_>) -> Option<Vec<[f64; 2]>> {
    let text = f.text("times")?;
    if text.is_empty() {
        return Some(Vec::new());
    }
    let times: Vec<f64> = f.list("times")?;
    let pairs = times.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|t| [t[0], t[1]]).collect())
}

fn device(f: &Fields<'_>) -> Option<GpuDescription> {
    Some(GpuDescription {
        count: f.number("count")?,
        driver: f.number("driver")?,
        nvrtc: f.text("nvrtc")?.into(),
        limits: squall_core::Gpu {
            capability: f.number("capability")?,
            multiprocessors: f.number("multiprocessors")?,
            threads_per_block: f.number("threads_per_block")?,
            threads_per_multiprocessor: f.number("threads_per_multiprocessor")?,
            shared_per_block: f.number("shared_per_block")?,
            shared_per_multiprocessor: f.number("shared_per_multiprocessor")?,
            registers_per_multiprocessor: f.number("registers_per_multiprocessor")?,
            l2: f.number("l2")?,
        },
        now: f.gpu()?,
        most_sm_mhz: f.number("most_sm_mhz")?,
        most_memory_mhz: f.number("most_memory_mhz")?,
        degrees: f.number("degrees")?,
        watts: f.number("watts")?,
        name: f.rest("name")?.trim().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read() {
        let said = |line: &str| match Line::parse(line) {
            Line::Reply(reply, _) => reply,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(said("0.01 ready version=1"), Reply::Ready(1));
        let measured = said("0.5 measured error=1e-7 calls=12 samples=1.5,2 pace=3 gpu=1,900,2,8");
        let gpu = GpuState { device: 1, sm_mhz: 900, memory_mhz: 2, throttle: 8 };
        let wanted = Measured {
            error: 1e-7,
            calls: 12,
            samples: vec![1.5, 2.0],
            pace: Some(3.0),
            gpu: Some(gpu),
        };
        assert_eq!(measured, Reply::Measured(wanted));
        assert_eq!(said("0 pairs times=1,2,3,4"), Reply::Pairs(vec![[1.0, 2.0], [3.0, 4.0]]));
        assert_eq!(said("0 pairs times="), Reply::Pairs(Vec::new()));
        assert_eq!(
            said("0 built bytes=3 name=_Zf name=_Zg"),
            Reply::Built(vec!["_Zf".into(), "_Zg".into()])
        );
        let failed = said("0.1 failed side=b where=wrong message=output[3] is where=0");
        let wanted = Failure {
            place: Place::Wrong,
            side: Some(Side::B),
            message: "output[3] is where=0".into(),
        };
        assert_eq!(failed, Reply::Failed(wanted));
        assert_eq!(Line::parse("0 crash message=killed"), Line::Crash("killed".into()));
        assert_eq!(Line::parse("hello measured"), Line::Noise);
        for strange in ["measured calls=1", "pairs times=1", "nothing", "failed where=x message=y"]
        {
            let line = Line::parse(&format!("0.1 {strange}"));
            assert_eq!(line, Line::Strange(strange.into()));
        }
    }

    #[test]
    fn a_device_is_described() {
        let line = "0.2 device count=2 driver=13000 nvrtc=13.0 capability=90 multiprocessors=132 \
                    threads_per_block=1024 threads_per_multiprocessor=2048 shared_per_block=232448 \
                    shared_per_multiprocessor=233472 registers_per_multiprocessor=65536 \
                    l2=62914560 gpu=1,345,3201,4 most_sm_mhz=1980 most_memory_mhz=3201 degrees=31 \
                    watts=77 name=NVIDIA H200";
        let Line::Reply(Reply::Device(d), cpu) = Line::parse(line) else { panic!("{line}") };
        assert_eq!((cpu, d.name.as_str(), d.nvrtc.as_str()), (0.2, "NVIDIA H200", "13.0"));
        assert_eq!((d.limits.capability, d.limits.l2, d.now.device), (90, 62914560, 1));
        assert!(matches!(Line::parse("0 device count=1 driver=2"), Line::Strange(_)));
    }

    #[test]
    fn requests_carry_their_plans() {
        let plan = HostPlan::default();
        let text = plan.to_string();
        let r = Request::Run { plan: &plan, tolerance: 1e-5, limit: 7.6, flush: 3 };
        let head = format!("run tolerance=1e-5 limit=8 flush=3 plan={}\n", text.len());
        assert_eq!(r.encode(), head + &text);
        let compile = Request::Compile { from: "a.cu", to: "a.cubin", with: Some("a.options") };
        assert_eq!(compile.encode(), "compile from=a.cu to=a.cubin with=a.options\n");
        let cores = Start::Kernels { cores: vec![3, 5], on: Clock::Gpu(1) };
        assert_eq!(cores.arguments(), ["1", "kernels", "3,5", "gpu:1"]);
    }
}
