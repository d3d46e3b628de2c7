//! Kernels for moves of data on a GPU, as CUDA C that is generated for one move: copies along axes
//! (transposes, slices, concatenations), contiguous runs of bytes, and fills with one value.
//!
//! Input is a `Copy` (axes with an extent and a stride on both sides) or a list of runs; output is
//! a `KernelSource`. Elements are moved as integers of their size, whatever their type, and several
//! at a time where alignment allows it; a copy may also convert floats of one format to another.
//! `squall/src/inference/network/device.rs` calls this for the steps of a network that only move
//! data.

use crate::emit::DEVICE_FORMATS;
use squall_core::{Bytes, DType, KernelSource, Language, Launch, LaunchArgument, LaunchPhase};
use std::fmt::Write as _;

/// One axis of a copy: a number of elements with one stride in the target and one in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedAxis {
    /// The number of elements.
    pub extent: u64,
    /// The stride in the target, in elements.
    pub to: u64,
    /// The stride in the source, in elements; negative where a copy mirrors the axis.
    pub from: i64,
}

/// A copy of elements of `size` bytes between two buffers, whose starts are aligned by 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub size: u64,
    /// The first element that is read.
    pub from: u64,
    /// The first element that is written.
    pub to: u64,
    /// The axes in any order; each element of the target is written once.
    pub axes: Vec<MovedAxis>,
    /// The formats of the source and of the target, where they differ: both are floats of 16 or 32
    /// bits then, and `size` says nothing.
    pub converts: Option<[DType; 2]>,
}

/// Threads of a block.
const THREADS: u32 = 256;
/// The side of a square tile that is transposed in shared memory.
const SQUARE: u64 = 32;
/// The most blocks that copy one list of runs.
const MOST_BLOCKS: u64 = 1 << 16;

impl Copy {
    /// The axes, outermost in the target first, without axes of extent 1; neighbouring axes are
    /// joined where both sides are contiguous across them.
    fn joined(&self) -> Vec<MovedAxis> {
        let mut axes: Vec<MovedAxis> =
            self.axes.iter().copied().filter(|a| a.extent != 1).collect();
        axes.sort_by_key(|a| std::cmp::Reverse(a.to));
        let mut list: Vec<MovedAxis> = Vec::new();
        for a in axes {
            match list.last_mut() {
                Some(o) if o.to == a.to * a.extent && o.from == a.from * a.extent as i64 => {
                    *o = MovedAxis { extent: o.extent * a.extent, ..a };
                }
                _ => list.push(a),
            }
        }
        list
    }

    /// How many elements are moved at once, of the innermost axis.
    fn width(&self, axes: &[MovedAxis]) -> u64 {
        let Some((last, outer)) = axes.split_last() else { return 1 };
        if last.to != 1 || last.from != 1 || self.converts.is_some() {
            return 1;
        }
        let suits = |n: u64| {
            let all = outer.iter().all(|a| a.to % n == 0 && a.from.unsigned_abs() % n == 0);
            all && last.extent % n == 0 && self.from.is_multiple_of(n) && self.to.is_multiple_of(n)
        };
        let mut width = (16 / self.size).max(1);
        while !suits(width) {
            width /= 2;
        }
        width
    }

    /// The kernel: a function of the source and the target.
    pub fn kernel(&self, symbol: &str) -> KernelSource {
        let axes = self.joined();
        let last = axes.last().copied().unwrap_or(MovedAxis { extent: 1, to: 1, from: 1 });
        let across = axes.iter().position(|a| a.from.unsigned_abs() == 1 && a.from > 0);
        match across {
            Some(row) if last.from != 1 && last.to == 1 && row + 1 < axes.len() => {
                self.turning(&axes, row, symbol)
            }
            _ => self.direct(&axes, symbol),
        }
    }

    /// Each thread moves what lies at one place of the target.
    fn direct(&self, axes: &[MovedAxis], symbol: &str) -> KernelSource {
        let width = self.width(axes);
        let shrunk = |i: usize, a: &MovedAxis| match i + 1 == axes.len() {
            true => MovedAxis { extent: a.extent / width, ..*a },
            false => MovedAxis { to: a.to / width, from: a.from / width as i64, ..*a },
        };
        let axes: Vec<MovedAxis> = axes.iter().enumerate().map(|(i, a)| shrunk(i, a)).collect();
        let all: u64 = axes.iter().map(|a| a.extent).product();
        let mut body = format!(
            "  unsigned long long rest = (unsigned long long)blockIdx.x * {THREADS} + \
             threadIdx.x;\n  if (rest >= {all}ULL) return;\n"
        );
        // Divisions by constants of 32 bits are cheap ones.
        if all < 1 << 31 {
            body = format!(
                "  unsigned rest = blockIdx.x * {THREADS}u + threadIdx.x;\n  if (rest >= {all}u) \
                 return;\n"
            );
        }
        body += &places(&axes, self.from / width, self.to / width);
        body += "  to[t] = from[f];\n";
        self.source(symbol, width, &body, all.div_ceil(u64::from(THREADS)))
    }

    /// The source lies in order along axis `row`, the target along the last: squares of both are
    /// turned in shared memory, so that reading and writing go along rows.
    fn turning(&self, axes: &[MovedAxis], row: usize, symbol: &str) -> KernelSource {
        let (r, c) = (axes[row], axes[axes.len() - 1]);
        let outer: Vec<MovedAxis> = axes[..axes.len() - 1]
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != row)
            .map(|(_, a)| *a)
            .collect();
        let (rows, columns) = (r.extent.div_ceil(SQUARE), c.extent.div_ceil(SQUARE));
        let blocks = outer.iter().map(|a| a.extent).product::<u64>() * rows * columns;
        // Divisions by constants of 32 bits are cheap ones.
        let number = if blocks < 1 << 31 { "unsigned" } else { "unsigned long long" };
        let mut body = format!(
            "  __shared__ element square[{SQUARE}][{}];\n  {number} rest = blockIdx.x;\n  \
             const int x = threadIdx.x % {SQUARE}, y = threadIdx.x / {SQUARE};\n  \
             const long long column = (long long)(rest % {columns}) * {SQUARE};\n  \
             rest /= {columns};\n  \
             const long long row = (long long)(rest % {rows}) * {SQUARE};\n  rest /= {rows};\n",
            SQUARE + 1
        );
        body += &places(&outer, self.from, self.to);
        // Compilers unroll loops of known lengths, so that all reads of a thread are under way at
        // once. Squares that all lie inside need no tests.
        let step = u64::from(THREADS) / SQUARE;
        let is_whole = [r, c].iter().all(|a| a.extent.is_multiple_of(SQUARE));
        let tests = match is_whole {
            true => [String::new(), String::new()],
            false => [
                format!("if (row + x < {} && column + k < {}) ", r.extent, c.extent),
                format!("if (column + x < {} && row + k < {}) ", c.extent, r.extent),
            ],
        };
        let _ = write!(
            body,
            "  for (int n = 0; n < {each}; n++) {{\n    const int k = y + n * {step};\n    \
             {read}square[k][x] = from[f + row + x + (column + k) * {cf}LL];\n  }}\n  \
             __syncthreads();\n  for (int n = 0; n < {each}; n++) {{\n    const int k = y + n * \
             {step};\n    {write}to[t + column + x + (row + k) * {rt}LL] = square[x][k];\n  }}\n",
            each = SQUARE / step,
            read = tests[0],
            write = tests[1],
            cf = c.from,
            rt = r.to,
        );
        self.source(symbol, 1, &body, blocks)
    }

    /// A kernel over the pointers `from` and `to`, whose elements are `width` elements of the copy
    /// each.
    fn source(&self, symbol: &str, width: u64, body: &str, blocks: u64) -> KernelSource {
        let (ahead, from, to) = match self.converts {
            None => ("", element(self.size * width), element(self.size * width)),
            Some([from, to]) => (DEVICE_FORMATS, float(from), float(to)),
        };
        let text = format!(
            "{ahead}typedef {to} element;\nextern \"C\" __global__ void {symbol}(const {from} \
             *__restrict__ from, element *__restrict__ to) {{\n{body}}}\n"
        );
        let arguments = vec![LaunchArgument::Data(0), LaunchArgument::Output(0)];
        launched(symbol, text, blocks, arguments)
    }
}

/// A floating-point number, as the device's functions know it.
fn float(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "half_t",
        DType::Bf16 => "bfloat_t",
        _ => "float",
    }
}

/// Text that finds the places `f` and `t` of the instance `rest`, in 32 bits where these suffice.
fn places(axes: &[MovedAxis], from: u64, to: u64) -> String {
    let reach = |step: &dyn Fn(&MovedAxis) -> u64, first: u64| {
        let far = axes.iter().map(|a| a.extent.saturating_mul(step(a)));
        far.fold(first, u64::saturating_add)
    };
    let most =
        reach(&|a: &MovedAxis| a.to, to).max(reach(&|a: &MovedAxis| a.from.unsigned_abs(), from));
    let (number, end) = if most < 1 << 31 { ("int", "") } else { ("long long", "LL") };
    let mut text = format!("  {number} f = {from}{end}, t = {to}{end};\n");
    for (i, a) in axes.iter().enumerate().rev() {
        let at = if i == 0 { "rest".into() } else { format!("rest % {}", a.extent) };
        let _ = writeln!(
            text,
            "  {{ const {number} at = ({number})({at}); f += at * ({}{end}); t += at * {}{end}; }}",
            a.from, a.to
        );
        if i > 0 {
            let _ = writeln!(text, "  rest /= {};", a.extent);
        }
    }
    text
}

/// The name of the integer type of this size.
fn element(bytes: u64) -> &'static str {
    match bytes {
        1 => "unsigned char",
        2 => "unsigned short",
        4 => "unsigned",
        8 => "uint2",
        _ => "uint4",
    }
}

/// A kernel of one launch of its only function.
fn launched(
    symbol: &str,
    source: String,
    blocks: u64,
    arguments: Vec<LaunchArgument>,
) -> KernelSource {
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX >> 1).max(1);
    KernelSource {
        language: Language::Cuda,
        source,
        symbol: symbol.into(),
        prepared: Bytes(0),
        workspace: Bytes(0),
        openmp: false,
        full_optimisation: true,
        flags: vec!["-default-device".into()],
        launches: vec![Launch {
            arguments: Some(arguments),
            ..Launch::linear(LaunchPhase::Call, symbol, blocks, THREADS, 0)
        }],
    }
}

/// Runs of elements of `size` bytes: the second data has for each its first element in the target,
/// its first in the source, and its length, as whole numbers of 64 bits. All `count` runs together
/// have `elements` elements. As many threads share a run as the mean run has elements, rounded down
/// to a power of two, because most threads of a whole block would have no element of a short run.
pub fn runs(
    size: u64,
    [from, to]: [u64; 2],
    [count, elements]: [u64; 2],
    symbol: &str,
) -> KernelSource {
    let element = element(size);
    let mean = (elements / count.max(1)).clamp(1, u64::from(THREADS));
    let threads = 1u64 << mean.ilog2();
    let at_once = u64::from(THREADS) / threads;
    let text = format!(
        "typedef {element} element;\nextern \"C\" __global__ void {symbol}(const element \
         *__restrict__ from, const long long *__restrict__ runs, element *__restrict__ to) {{\n  \
         const int own = threadIdx.x % {threads};\n  for (long long r = (long long)blockIdx.x * \
         {at_once} + threadIdx.x / {threads}; r < {count}LL; r += (long long)gridDim.x * \
         {at_once}) {{\n    const long long t = {to}LL + runs[3 * r], f = {from}LL + runs[3 * r + \
         1], n = runs[3 * r + 2];\n    for (long long i = own; i < n; i += {threads}) to[t + i] = \
         from[f + i];\n  }}\n}}\n"
    );
    let arguments =
        vec![LaunchArgument::Data(0), LaunchArgument::Data(1), LaunchArgument::Output(0)];
    launched(symbol, text, count.div_ceil(at_once).min(MOST_BLOCKS), arguments)
}

/// Fills `count` elements from element `to` on with the bytes `value` of one element.
pub fn fill(value: &[u8], to: u64, count: u64, symbol: &str) -> KernelSource {
    let number = |bytes: &[u8]| {
        let all = bytes.iter().rev().fold(0u64, |all, b| all << 8 | u64::from(*b));
        format!("{all}u")
    };
    let (element, value) = match value.len() {
        8 => ("uint2", format!("make_uint2({}, {})", number(&value[..4]), number(&value[4..]))),
        n => (element(n as u64), number(value)),
    };
    let text = format!(
        "typedef {element} element;\nextern \"C\" __global__ void {symbol}(element \
         *__restrict__ to) {{\n  const unsigned long long i = (unsigned long long)blockIdx.x * \
         {THREADS} + threadIdx.x;\n  if (i < {count}ULL) to[{to}ULL + i] = (element){value};\n}}\n"
    );
    let blocks = count.div_ceil(u64::from(THREADS));
    launched(symbol, text, blocks, vec![LaunchArgument::Output(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(extent: u64, to: u64, from: i64) -> MovedAxis {
        MovedAxis { extent, to, from }
    }

    #[test]
    fn neighbours_are_joined_and_moved_together() {
        let copy = Copy {
            size: 4,
            from: 8,
            to: 0,
            axes: vec![axis(2, 96, 48), axis(1, 7, 9), axis(3, 4, 4), axis(4, 1, 1)],
            converts: None,
        };
        assert_eq!(copy.joined(), [axis(2, 96, 48), axis(12, 1, 1)]);
        assert_eq!(copy.width(&copy.joined()), 4);
        let odd = Copy { from: 2, ..copy.clone() };
        assert_eq!(odd.width(&odd.joined()), 2);
        let text = copy.kernel("k").source;
        assert!(text.contains("typedef uint4 element") && text.contains("rest >= 6u"), "{text}");
        let bytes = Copy { size: 1, ..copy };
        assert_eq!(bytes.width(&bytes.joined()), 4);
    }

    #[test]
    fn a_transposition_goes_through_shared_memory() {
        let axes = vec![axis(40, 70, 1), axis(70, 1, 40)];
        let copy = Copy { size: 4, from: 0, to: 0, axes, converts: None };
        let k = copy.kernel("k");
        assert!(k.source.contains("__shared__") && k.launches[0].blocks == [6, 1, 1], "{k:?}");
        // A mirrored row lies in no order that reading could go along.
        let mirror = Copy { axes: vec![axis(40, 70, -1), axis(70, 1, 40)], ..copy };
        assert!(!mirror.kernel("k").source.contains("__shared__"));
    }

    #[test]
    fn a_copy_converts_what_it_moves() {
        let converts = Some([DType::F32, DType::Bf16]);
        let copy = Copy { size: 4, from: 0, to: 8, axes: vec![axis(12, 1, 1)], converts };
        let text = copy.kernel("k").source;
        assert!(text.contains("typedef bfloat_t element") && text.contains("const float *"));
        assert!(text.contains("to[t] = from[f]") && text.contains("rest >= 12u"), "{text}");
    }

    #[test]
    fn as_many_threads_share_a_run_as_it_has_elements() {
        for (elements, threads, blocks) in [(30, 1, 1), (30 * 43, 32, 4), (30 << 20, 256, 30)] {
            let k = runs(4, [0, 0], [30, elements], "k");
            assert!(k.source.contains(&format!("threadIdx.x % {threads};")), "{}", k.source);
            assert_eq!(k.launches[0].blocks, [blocks, 1, 1]);
        }
        assert_eq!(runs(1, [0, 0], [0, 0], "k").launches[0].blocks, [1, 1, 1]);
    }

    #[test]
    fn values_keep_their_bytes() {
        let text = fill(&1.5f64.to_ne_bytes(), 0, 3, "k").source;
        assert!(text.contains("make_uint2(0u, 1073217536u)"), "{text}");
        assert!(fill(&[255], 2, 3, "k").source.contains("to[2ULL + i] = (element)255u"));
    }
}
