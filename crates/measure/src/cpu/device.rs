//! The CPU of this machine or of a board, as measuring sees it: its name, caches, vector width, and
//! the cores that may be used for measuring and for building. All facts are read from the system
//! and the compiler; none are assumed. From a [`Device`] follow the compiler's target model and the
//! device's name in records.

use super::Toolchain;
use super::level::{Execution, highest_level, runs};
use crate::board::Board;
use squall_core::{AMX_TILES, Bytes, DeviceIdentity, Isa, MeasurerError, Target, TileUnit};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where Linux describes its cores.
const CPUS: &str = "/sys/devices/system/cpu";
/// Where Linux names the processor.
const CPUINFO: &str = "/proc/cpuinfo";
/// The largest number of threads that may share cores, where the machine has fewer cores.
const MOST_THREADS: usize = 256;
/// The end of the name that is made up for a processor without one.
const UNNAMED: &str = " processor";

/// Reads a file of a machine's system: this one's, or a board's.
type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A data or unified cache as one core sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its level; 1 is innermost.
    pub level: usize,
    /// Its whole size.
    pub size: Bytes,
    /// How many physical cores share it.
    pub shared_by: usize,
}

/// A CPU, and the cores of it that kernels are measured on.
#[derive(Clone, Debug)]
pub struct Device {
    /// The facts that code generation and search need.
    pub target: Target,
    /// The CPU's name.
    pub model: String,
    /// Instruction set extensions that the compiler uses here, as `avx512f`.
    pub features: Vec<String>,
    /// The cores that kernels run on, one a thread: where there are more threads than cores, a core
    /// stands here for each thread that it has.
    pub cores: Vec<usize>,
    /// Other cores, which do not disturb these: builds run there.
    pub spare: Vec<usize>,
    /// Other cores which do, as the second thread of a physical core does: builds run there only
    /// while nothing is measured.
    pub siblings: Vec<usize>,
    /// Data caches, innermost first.
    pub caches: Vec<Cache>,
    /// How its kernels are run.
    pub execution: Execution,
}

impl Device {
    /// This machine, with `threads` of its cores for kernels, held to the level of instructions
    /// that the toolchain makes. More threads than cores share these ([`Device::crowding`]). A
    /// level of another architecture, or more than the CPU has, is no error: kernels can be made of
    /// it, and [`Device::execution`] says what runs them.
    pub fn detect(threads: usize, toolchain: &Toolchain) -> Result<Device, MeasurerError> {
        let allowed = allowed_cores();
        let most = MOST_THREADS.max(allowed.len());
        if threads == 0 || threads > most {
            let cores = allowed.len();
            let plural = if cores == 1 { "" } else { "s" };
            return Err(MeasurerError::Device(format!(
                "{threads} threads: 1 to {most} may share the {cores} core{plural} of this process"
            )));
        }
        if threads > 1 && !toolchain.openmp() {
            return Err(MeasurerError::Device(format!(
                "kernels of {threads} threads need OpenMP, which `{}` does not compile; install \
                 its OpenMP library (for clang: `apt-get install libomp-dev`)",
                toolchain.command()
            )));
        }
        let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_string());
        let cores = choose(&allowed, &|core| siblings(&read, core), threads);
        let execution = toolchain.isa().map_or(Execution::Here, |isa| runs(isa.level()));
        let model = match (&execution, toolchain.isa()) {
            (Execution::Here, _) | (_, None) => model(&read(CPUINFO).unwrap_or_default()),
            // Nothing is known of the machine that will run them.
            (Execution::Emulated(_), Some(isa)) => {
                DeviceIdentity::emulated(isa.level().architecture.name())
            }
            (_, Some(isa)) => format!("any {} processor", isa.level().architecture.name()),
        };
        let caches = cores.own.first().map(|&c| caches(&read, c)).unwrap_or_default();
        Device::of(toolchain, cores, caches, model, execution)
    }

    /// A board, with `threads` of its cores for kernels; builds run on this machine's cores.
    pub(super) fn of_board(
        board: &Board,
        threads: usize,
        toolchain: &Toolchain,
    ) -> Result<Device, MeasurerError> {
        let facts = board.facts();
        if threads == 0 || threads > facts.cores.len() {
            return Err(MeasurerError::Device(format!(
                "{threads} threads cannot be measured: {} lets its user have {} core{}",
                board.address(),
                facts.cores.len(),
                if facts.cores.len() == 1 { "" } else { "s" }
            )));
        }
        let read = |path: &str| facts.read(path);
        let own = choose(&facts.cores, &|core| siblings(&read, core), threads).own;
        let caches = own.first().map(|&c| caches(&read, c)).unwrap_or_default();
        let named = model(&read(CPUINFO).unwrap_or_default());
        let model =
            if named.ends_with(UNNAMED) { format!("{} processor", facts.machine) } else { named };
        let execution = Execution::Board(board.clone());
        let cores = Cores { own, spare: allowed_cores(), siblings: Vec::new() };
        Device::of(toolchain, cores, caches, model, execution)
    }

    fn of(
        toolchain: &Toolchain,
        cores: Cores,
        caches: Vec<Cache>,
        model: String,
        execution: Execution,
    ) -> Result<Device, MeasurerError> {
        let Cores { own: cores, spare, siblings } = cores;
        let macros = toolchain.macros();
        let share = |c: &Cache| Bytes(c.size.0 / c.shared_by.max(1) as u64);
        let shares: Vec<Bytes> = caches.iter().map(share).collect();
        let target = match toolchain.isa() {
            Some(isa) => Target::at_level(isa, &shares),
            None => {
                let (vector_bytes, vector_registers) = vectors(macros);
                let mut target = Target::cpu(vector_bytes, vector_registers, &shares);
                target.machine.tiles = tiles(macros);
                target.machine.words = multiplies_words(macros);
                target
            }
        };
        let target = Target { threads: cores.len(), ..target };
        let features = features(macros);
        Ok(Device { target, model, features, cores, spare, siblings, caches, execution })
    }

    /// A command that starts a program made for this device: under an emulator where it needs one.
    pub fn command(&self, program: &Path) -> Command {
        match &self.execution {
            Execution::Emulated(words) => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]).arg(program);
                command
            }
            _ => Command::new(program),
        }
    }

    /// Refuses a device whose kernels cannot be timed: they run elsewhere, or under an emulator.
    pub fn can_time(&self) -> Result<(), MeasurerError> {
        match (&self.execution, self.target.isa) {
            (Execution::Emulated(command), Some(isa)) => Err(MeasurerError::Device(format!(
                "kernels of {isa} run here under {} only, and times under an emulator say \
                 nothing of any machine; `--runner qemu` checks kernels and times none, \
                 `--runner ssh://HOST` tunes on a machine of that level; `squall run`, `check` and \
                 `export` work",
                command.first().map_or("an emulator", String::as_str)
            ))),
            _ => self.can_run(),
        }
    }

    /// Why times of its kernels mean nothing although they are right: more threads than cores, of
    /// which one waits for the other.
    pub fn crowding(&self) -> Option<String> {
        let (threads, cores) = (self.cores.len(), self.distinct_cores().len());
        let plural = if cores == 1 { "" } else { "s" };
        (threads > cores).then(|| {
            format!(
                "{threads} threads share {cores} core{plural}: times say nothing of a machine that \
                 has a core for each"
            )
        })
    }

    /// The cores that kernels run on, each once.
    pub(crate) fn distinct_cores(&self) -> Vec<usize> {
        distinct(&self.cores)
    }

    /// Refuses a device whose kernels cannot run here at all.
    pub fn can_run(&self) -> Result<(), MeasurerError> {
        match &self.execution {
            Execution::Nowhere(why) => Err(MeasurerError::Device(why.clone())),
            _ => Ok(()),
        }
    }

    /// Whether its kernels run under an emulator, where results are right or wrong and times say
    /// nothing.
    pub fn is_emulated(&self) -> bool {
        matches!(self.execution, Execution::Emulated(_))
    }

    /// The cores of this machine on which kernels may be compiled while nothing is measured.
    pub(crate) fn building_cores(&self) -> Vec<usize> {
        match self.execution {
            Execution::Board(_) => self.spare.clone(),
            _ => [&self.distinct_cores()[..], &self.siblings, &self.spare].concat(),
        }
    }

    /// The device's identity, within which times compare.
    pub fn identity(&self) -> DeviceIdentity {
        let t = &self.target;
        let identity = DeviceIdentity::cpu(self.model.clone(), t.vector_bytes(), t.threads);
        // The machine's own level is no restriction: its records are the machine's.
        let is_less = |isa: &Isa| match &self.execution {
            Execution::Here => highest_level() != Some(*isa),
            Execution::Board(board) => board.facts().highest_level() != Some(*isa),
            _ => true,
        };
        identity.with_isa(t.isa.filter(is_less))
    }

    /// The device's name in records.
    pub fn id(&self) -> String {
        self.identity().to_string()
    }

    /// Cores that this process may use.
    pub fn allowed_cores(&self) -> usize {
        self.distinct_cores().len() + self.spare.len() + self.siblings.len()
    }
}

/// The cores that the scheduler may put this process on.
fn allowed_cores() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        return (0..rustix::thread::CpuSet::MAX_CPU).filter(|&c| set.is_set(c)).collect();
    }
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}

/// Cores, each once.
pub(super) fn distinct(cores: &[usize]) -> Vec<usize> {
    let mut all = cores.to_vec();
    all.sort_unstable();
    all.dedup();
    all
}

/// The logical cores of the physical one that `core` belongs to.
fn siblings(read: Read<'_>, core: usize) -> Vec<usize> {
    let path = format!("{CPUS}/cpu{core}/topology/thread_siblings_list");
    let text = read(&path).unwrap_or_default();
    let list = core_list(&text);
    if list.contains(&core) { list } else { vec![core] }
}

/// Parses `0-3,8`.
fn core_list(text: &str) -> Vec<usize> {
    let mut list = Vec::new();
    for part in text.trim().split(',') {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(a), Ok(b)) = (a.trim().parse::<usize>(), b.trim().parse::<usize>())
            && b < 1 << 16
        {
            list.extend(a..=b);
        }
    }
    list
}

/// The cores of a machine by what they are for, as [`Device`] has them.
#[derive(Debug, PartialEq, Eq)]
struct Cores {
    /// The measured ones, one a thread.
    own: Vec<usize>,
    /// Others, for building.
    spare: Vec<usize>,
    /// The siblings of measured ones, where a compiler would slow down what is measured.
    siblings: Vec<usize>,
}

/// Divides the cores. The measured ones come from the end, since the first ones see most
/// interrupts, and from distinct physical cores while there are any. More threads than cores go
/// round them.
fn choose(allowed: &[usize], siblings: &dyn Fn(usize) -> Vec<usize>, threads: usize) -> Cores {
    let mut chosen: Vec<usize> = Vec::new();
    let mut taken: Vec<usize> = Vec::new();
    for &c in allowed.iter().rev() {
        if chosen.len() < threads && !taken.contains(&c) {
            taken.extend(siblings(c));
            chosen.push(c);
        }
    }
    for &c in allowed.iter().rev() {
        if chosen.len() < threads && !chosen.contains(&c) {
            chosen.push(c);
        }
    }
    let rounds = allowed.iter().copied().cycle();
    chosen.extend(rounds.take(threads.saturating_sub(chosen.len())));
    let others = allowed.iter().copied().filter(|c| !chosen.contains(c));
    let (disturbing, spare) = others.partition(|c| taken.contains(c));
    chosen.sort_unstable();
    Cores { own: chosen, spare, siblings: disturbing }
}

fn caches(read: Read<'_>, core: usize) -> Vec<Cache> {
    let mut found = Vec::new();
    let threads = siblings(read, core).len().max(1);
    for index in 0..16 {
        let read = |name: &str| read(&format!("{CPUS}/cpu{core}/cache/index{index}/{name}"));
        let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size"))
        else {
            continue;
        };
        let (Ok(level), Some(size)) = (level.parse::<usize>(), cache_size(&size)) else { continue };
        if kind != "Instruction" {
            let shared_by =
                read("shared_cpu_list").map_or(1, |l| core_list(&l).len()).div_ceil(threads).max(1);
            found.push(Cache { level, size, shared_by });
        }
    }
    found.sort_by_key(|c| c.level);
    found
}

/// Parses `32K`.
fn cache_size(text: &str) -> Option<Bytes> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "" => 1,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|&b| b > 0).map(Bytes)
}

/// Width in bytes and number of vector registers, from the compiler's predefined macros.
fn vectors(macros: &str) -> (usize, usize) {
    const WIDTHS: [(&str, (usize, usize)); 9] = [
        ("__AVX512F__", (64, 32)),
        ("__AVX__", (32, 16)),
        ("__SSE2__", (16, 16)),
        ("__ARM_NEON", (16, 32)),
        ("__VSX__", (16, 64)),
        ("__ALTIVEC__", (16, 32)),
        ("__VEC__", (16, 32)),
        ("__loongarch_asx", (32, 32)),
        ("__riscv_vector", (16, 32)),
    ];
    WIDTHS.iter().find(|(name, _)| defined(macros, name)).map_or((16, 16), |w| w.1)
}

/// The unit that multiplies tiles, where the compiler may use one.
fn tiles(macros: &str) -> Option<TileUnit> {
    let amx = ["__AMX_TILE__", "__AMX_INT8__", "__AMX_BF16__"];
    amx.iter().all(|name| defined(macros, name)).then_some(AMX_TILES)
}

/// Whether the compiler makes products of bytes of products of words.
fn multiplies_words(macros: &str) -> bool {
    let of_bytes = ["__AVX512VNNI__", "__AVXVNNI__"];
    defined(macros, "__SSE2__") && !of_bytes.iter().any(|name| defined(macros, name))
}

fn defined(macros: &str, name: &str) -> bool {
    macros.lines().any(|l| l.split_whitespace().nth(1) == Some(name))
}

fn features(macros: &str) -> Vec<String> {
    const KNOWN: [&str; 21] = [
        "__SSE2__",
        "__SSE4_2__",
        "__AVX__",
        "__FMA__",
        "__F16C__",
        "__AVX2__",
        "__AVX512F__",
        "__AVX512BW__",
        "__AVX512VL__",
        "__AVX512VNNI__",
        "__AVX512BF16__",
        "__AVX512FP16__",
        "__AMX_TILE__",
        "__AMX_BF16__",
        "__ARM_NEON",
        "__ARM_FEATURE_FMA",
        "__ARM_FEATURE_SVE",
        "__ARM_FEATURE_DOTPROD",
        "__ARM_FEATURE_BF16",
        "__VSX__",
        "__riscv_vector",
    ];
    KNOWN
        .iter()
        .filter(|k| defined(macros, k))
        .map(|k| k.trim_matches('_').replace("ARM_FEATURE_", "").to_lowercase())
        .collect()
}

/// The CPU's name. Architectures call its line differently, and some have none.
fn model(cpuinfo: &str) -> String {
    let value = |key: &str| {
        cpuinfo.lines().find_map(|l| {
            let (k, v) = l.split_once(':')?;
            let v = v.split_whitespace().collect::<Vec<_>>().join(" ");
            (k.trim().eq_ignore_ascii_case(key) && !v.is_empty()).then_some(v)
        })
    };
    ["model name", "cpu model", "uarch", "cpu"]
        .iter()
        .find_map(|k| value(k))
        .or_else(|| {
            Some(format!(
                "ARM implementer {} part {}",
                value("CPU implementer")?,
                value("CPU part")?
            ))
        })
        .unwrap_or_else(|| format!("{}{UNNAMED}", std::env::consts::ARCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_read() {
        let t = Toolchain::detect().unwrap();
        let d = Device::detect(1, &t).unwrap();
        assert!(d.target.vector_bytes() >= 16 && d.target.vector_registers() >= 16);
        assert!(
            d.id().starts_with("cpu ") && d.id().ends_with("-byte vectors, 1 thread"),
            "{}",
            d.id()
        );
        assert_eq!(d.cores.len(), 1);
        assert!(d.target.machine.caches.is_sorted_by_key(|c| c.size));
        let error = Device::detect(100_000, &t).unwrap_err().to_string();
        assert!(error.contains("100000 threads") && error.contains("core"), "{error}");
        assert!(Device::detect(0, &t).is_err());
    }

    #[test]
    fn cores_are_chosen_apart() {
        let adjacent = |c: usize| vec![c & !1, c | 1];
        let cores = |own, spare, siblings| Cores { own, spare, siblings };
        assert_eq!(
            choose(&[0, 1, 2, 3, 4, 5, 6, 7], &adjacent, 2),
            cores(vec![5, 7], vec![0, 1, 2, 3], vec![4, 6])
        );
        assert_eq!(choose(&[0, 1], &adjacent, 1), cores(vec![1], vec![], vec![0]));
        assert_eq!(choose(&[0, 1], &adjacent, 2), cores(vec![0, 1], vec![], vec![]));
        let alone = |c: usize| vec![c];
        assert_eq!(choose(&[3, 9], &alone, 1), cores(vec![9], vec![3], vec![]));
        assert_eq!(choose(&[0, 1, 2, 3], &adjacent, 3), cores(vec![1, 2, 3], vec![], vec![0]));
    }

    #[test]
    fn the_systems_spellings_are_parsed() {
        assert_eq!(core_list("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(core_list("nonsense"), Vec::<usize>::new());
        assert_eq!(cache_size("36608K"), Some(Bytes(36608 << 10)));
        assert_eq!(cache_size("2M"), Some(Bytes(2 << 20)));
        assert_eq!(cache_size("0K"), None);
        assert_eq!(cache_size("many"), None);
    }

    #[test]
    fn vectors_of_several_machines() {
        assert_eq!(
            vectors("#define __SSE2__ 1\n#define __AVX__ 1\n#define __AVX512F__ 1\n"),
            (64, 32)
        );
        assert_eq!(
            vectors("#define __SSE2__ 1\n#define __AVX2__ 1\n#define __AVX__ 1\n"),
            (32, 16)
        );
        assert_eq!(vectors("#define __SSE2__ 1\n#define __NOT__AVX__ 1\n"), (16, 16));
        assert_eq!(vectors("#define __ARM_NEON 1\n"), (16, 32));
        assert_eq!(vectors(""), (16, 16));
        assert_eq!(features("#define __FMA__ 1\n#define __ARM_FEATURE_SVE 1\n"), ["fma", "sve"]);
    }

    #[test]
    fn models_of_several_machines() {
        assert_eq!(
            model("processor\t: 0\nmodel name\t: Intel(R)   Xeon(R) CPU\n"),
            "Intel(R) Xeon(R) CPU"
        );
        assert_eq!(
            model("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"),
            "ARM implementer 0x41 part 0xd0c"
        );
        assert_eq!(
            model("processor: 0\ncpu\t\t: POWER9, altivec supported\n"),
            "POWER9, altivec supported"
        );
        assert!(model("").ends_with("processor"));
    }
}
