//! What a session is told: budget, threads, seed, strategy.

use std::path::PathBuf;

/// How much may be spent; the first limit reached ends a task or the session. Trials are new
/// measurements: what the store knows already is not repeated and does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// Trials of each task.
    pub task_trials: Option<u64>,
    /// Wall-clock seconds of each task.
    pub task_seconds: Option<f64>,
    /// Trials of all tasks together, shared out by expected gain.
    pub trials: Option<u64>,
    /// Wall-clock seconds of all tasks together, shared out by expected gain.
    pub seconds: Option<f64>,
}

impl Budget {
    /// Whether tasks share a budget, so that somebody has to decide between them.
    pub fn is_shared(&self) -> bool {
        self.task_trials.is_none() && self.task_seconds.is_none()
    }
}

/// What kernels are tuned for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetRequest {
    /// This machine's CPU.
    #[default]
    Cpu,
    /// The CUDA device of this number.
    Cuda(u32),
    /// All CUDA devices side by side; they are of one model.
    CudaAll,
}

impl std::str::FromStr for TargetRequest {
    type Err = String;
    fn from_str(text: &str) -> Result<TargetRequest, String> {
        let number = match text {
            "cpu" => return Ok(TargetRequest::Cpu),
            "cuda:all" => return Ok(TargetRequest::CudaAll),
            "cuda" => Some(0),
            _ => text.strip_prefix("cuda:").and_then(|n| n.parse().ok()),
        };
        number.map(TargetRequest::Cuda).ok_or_else(|| {
            "expected `cpu`, `cuda`, `cuda:N` with the number of a device, or `cuda:all`".into()
        })
    }
}

/// What the caches hold when a call is timed. Times of the two kinds are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caches {
    /// What the call before left.
    #[default]
    Warm,
    /// Nothing; on a CPU nothing but the data inputs, as if a layer before had just written them.
    Cold,
}

impl std::str::FromStr for Caches {
    type Err = String;
    fn from_str(text: &str) -> Result<Caches, String> {
        match text {
            "warm" => Ok(Caches::Warm),
            "cold" => Ok(Caches::Cold),
            _ => Err("expected `warm` or `cold`".into()),
        }
    }
}

/// What a session is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How much may be spent.
    pub budget: Budget,
    /// What kernels are tuned for.
    pub target: TargetRequest,
    /// Threads that a kernel may use; of no meaning on a GPU.
    pub threads: usize,
    /// Of everything random.
    pub seed: u64,
    /// The strategy's name; the first of [`squall_search::strategies`] if none.
    pub strategy: Option<String>,
    /// Only tasks whose name or id matches.
    pub only: Option<String>,
    /// Only sketches whose name matches, where any does.
    pub sketch: Option<String>,
    /// Whether what holds similar tasks is tried first.
    pub transfer: bool,
    /// A predictor trained on records, whose candidates are each task's first trials.
    pub predictor: Option<PathBuf>,
    /// Whether the machine's roof is measured first (half a second).
    pub roof: bool,
    /// What the caches hold when a call is timed.
    pub caches: Caches,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            budget: Budget::default(),
            target: TargetRequest::Cpu,
            threads: 1,
            seed: 0,
            strategy: None,
            only: None,
            sketch: None,
            transfer: true,
            predictor: None,
            roof: true,
            caches: Caches::Warm,
        }
    }
}
