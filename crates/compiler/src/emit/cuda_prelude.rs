//! The device functions ahead of a CUDA kernel, in families that are included if the kernel used
//! them: 16-bit formats, asynchronous copies, tensor cores (`mma.sync`, `wgmma`) and the copy
//! engine, as inline PTX. Input: the set `Used` that the printer collected; output: CUDA C++ text.
//! `warps.rs`, `tma.rs` and `thread_statements.rs` print the calls.

use super::dialect::{ProductForm, Used};

/// The functions that a program used.
pub fn text(used: &Used) -> String {
    let matrices = used.has("matrices");
    let families = [
        (used.has("peer"), PEER),
        (matrices || used.has("formats"), FORMATS),
        (used.has("copies"), COPIES),
        (matrices, TENSOR_CORES),
        (used.has("tma"), TMA_TILES),
        (used.has("fours"), FOURS),
        (used.has("max_nan"), MAX_NAN),
        (used.has("min_nan"), MIN_NAN),
        (used.has("sign"), SIGN),
        (used.has("lanes"), LANES),
        (used.has("powers"), POWERS),
        (used.has("swizzled"), SWIZZLED),
        (!used.products.is_empty(), WARPGROUPS),
        (used.products.iter().any(|p| p.3 == ProductForm::Held), HELD_FACTORS),
    ];
    let mut all: String = families.iter().filter(|f| f.0).map(|f| f.1).collect();
    for (format, columns, across, form) in &used.products {
        all += &warpgroup_product(format, *columns, *across, *form);
    }
    all
}

/// Reads and writes elements of another block's shared memory. The last barrier of a cluster only
/// keeps blocks from ending while others still read them; it need not wait for outputs to reach
/// memory, which takes 0.3 us. A barrier at the start of a program only says that blocks have
/// begun, and a block waits for it when it first accesses another block's memory.
const PEER: &str = "\
static __device__ __forceinline__ float peer(const float *p, unsigned rank) {
  unsigned here = (unsigned)__cvta_generic_to_shared(p), there;
  float x;
  asm(\"mapa.shared::cluster.u32 %0, %1, %2;\" : \"=r\"(there) : \"r\"(here), \"r\"(rank));
  asm volatile(\"ld.shared::cluster.f32 %0, [%1];\" : \"=f\"(x) : \"r\"(there) : \"memory\");
  return x;
}
static __device__ __forceinline__ unsigned peer_place(float *p, unsigned rank) {
  unsigned there;
  asm(\"mapa.shared::cluster.u32 %0, %1, %2;\" : \"=r\"(there) \
  : \"r\"((unsigned)__cvta_generic_to_shared(p)), \"r\"(rank));
  return there;
}
static __device__ __forceinline__ void bring(float *p, unsigned rank, float x) {
  asm volatile(\"st.shared::cluster.f32 [%0], %1;\" :: \"r\"(peer_place(p, rank)), \"f\"(x) \
  : \"memory\");
}
static __device__ __forceinline__ void bring(float *p, unsigned rank, float2 x) {
  asm volatile(\"st.shared::cluster.v2.f32 [%0], {%1, %2};\" :: \"r\"(peer_place(p, \
  rank)), \"f\"(x.x), \"f\"(x.y) : \"memory\");
}
static __device__ __forceinline__ void bring(float *p, unsigned rank, float4 x) {
  asm volatile(\"st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};\"
    :: \"r\"(peer_place(p, rank)), \"f\"(x.x), \"f\"(x.y), \"f\"(x.z), \"f\"(x.w) : \"memory\");
}
static __device__ __forceinline__ void cluster_begin() { asm \
volatile(\"barrier.cluster.arrive.relaxed.aligned;\" ::: \"memory\"); }
static __device__ __forceinline__ void cluster_begun() { asm \
volatile(\"barrier.cluster.wait.acquire.aligned;\" ::: \"memory\"); }
static __device__ __forceinline__ void cluster_barrier() {
  asm volatile(\"barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;\" \
  ::: \"memory\");
}
static __device__ __forceinline__ void cluster_leave() {
  asm volatile(\"barrier.cluster.arrive.relaxed.aligned;\\nbarrier.cluster.wait.acquire.aligned;\" \
  ::: \"memory\");
}
";

/// Elements of 16 bits, and rounding of factors: they convert to and from `float` where they are
/// used. Devices before capability 9.0 round ties to tf32 away from zero, later ones to even, in
/// one instruction instead of three.
pub const FORMATS: &str = "\
struct bfloat_t {
  unsigned short bits;
  __device__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
  __device__ bfloat_t &operator=(float x) { asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(bits) \
  : \"f\"(x)); return *this; }
};
struct half_t {
  unsigned short bits;
  __device__ operator float() const { float x; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) \
  : \"h\"(bits)); return x; }
  __device__ half_t &operator=(float x) { asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(bits) \
  : \"f\"(x)); return *this; }
};
static __device__ __forceinline__ unsigned join(unsigned low, unsigned high) { return low | high \
<< 16; }
static __device__ __forceinline__ unsigned pair_bfloat_t(float low, float high) {
  unsigned p;
  asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(p) : \"f\"(high), \"f\"(low));
  return p;
}
static __device__ __forceinline__ unsigned pair_half_t(float low, float high) {
  unsigned p;
  asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(p) : \"f\"(high), \"f\"(low));
  return p;
}
static __device__ __forceinline__ unsigned tf32_bits(float x) {
  unsigned bits;
#if __CUDA_ARCH__ >= 900
  asm(\"cvt.rn.tf32.f32 %0, %1;\" : \"=r\"(bits) : \"f\"(x));
#else
  asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(bits) : \"f\"(x));
#endif
  return bits;
}
static __device__ __forceinline__ float tf32(float x) { return __uint_as_float(tf32_bits(x)); }
";

/// Matrices across a warp's registers. A matrix of factors has 16 rows of 32 bytes: four registers
/// a thread, in the order in which the first factor of `mma` wants them; the second factor is two
/// matrices of 8 rows, in registers side by side. Sums are 16 x 16: two results side by side.
const TENSOR_CORES: &str = "\
static __device__ __forceinline__ void matrix(unsigned *r, unsigned row) {
  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"
    : \"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3]) : \"r\"(row) : \"memory\");
}
static __device__ __forceinline__ void matrix_transposed(unsigned *r, unsigned row) {
  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\"
    : \"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3]) : \"r\"(row) : \"memory\");
}
static __device__ __forceinline__ void matrix(unsigned *r, const void *row) { matrix(r, \
(unsigned)__cvta_generic_to_shared(row)); }
static __device__ __forceinline__ void matrix_transposed(unsigned *r, const void *row) { \
matrix_transposed(r, (unsigned)__cvta_generic_to_shared(row)); }
static __device__ __forceinline__ void matrix_round(unsigned *r) {
  for (int i = 0; i < 4; i++) r[i] = tf32_bits(__uint_as_float(r[i]));
}
static __device__ __forceinline__ void matrix_split(unsigned *r, unsigned *rest) {
  for (int i = 0; i < 4; i++) {
    float x = __uint_as_float(r[i]);
    r[i] = tf32_bits(x);
    rest[i] = tf32_bits(x - __uint_as_float(r[i]));
  }
}
#define MULTIPLY(name, what, b0, b1) \\
static __device__ __forceinline__ void name(float *c, const unsigned *a, const unsigned *b) { \\
  asm(\"mma.sync.aligned.\" what \" {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, \
  %3};\" \\
    : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) \
    : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[b0]), \"r\"(b[b1])); \\
}
MULTIPLY(left_bf16, \"m16n8k16.row.col.f32.bf16.bf16.f32\", 0, 1)
MULTIPLY(right_bf16, \"m16n8k16.row.col.f32.bf16.bf16.f32\", 2, 3)
MULTIPLY(left_f16, \"m16n8k16.row.col.f32.f16.f16.f32\", 0, 1)
MULTIPLY(right_f16, \"m16n8k16.row.col.f32.f16.f16.f32\", 2, 3)
MULTIPLY(left_tf32, \"m16n8k8.row.col.f32.tf32.tf32.f32\", 0, 1)
MULTIPLY(right_tf32, \"m16n8k8.row.col.f32.tf32.tf32.f32\", 2, 3)
";

/// Four neighbours of a row of sums, rounded to 16 bits: a lane has two elements of either half of
/// the row, and gives its neighbour those in the half that it does not store itself.
const FOURS: &str = "\
#define FOURS(type) \\
static __device__ __forceinline__ uint2 fours_##type(const float *c) { \\
  const bool odd = threadIdx.x & 1; \\
  const unsigned low = pair_##type(c[0], c[1]), high = pair_##type(c[4], c[5]); \\
  const unsigned got = __shfl_xor_sync(0xffffffffu, odd ? low : high, 1); \\
  return odd ? make_uint2(got, high) : make_uint2(low, got); \\
}
FOURS(bfloat_t)
FOURS(half_t)
";

/// The larger of two numbers, and NaN where one is, which `fmaxf` loses: one instruction as well.
const MAX_NAN: &str = "\
static __device__ __forceinline__ float max_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float x;
  asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(x) : \"f\"(a), \"f\"(b));
  return x;
#else
  return a > b || a != a ? a : b;
#endif
}
";

/// The smaller, as `MAX_NAN`.
const MIN_NAN: &str = "\
static __device__ __forceinline__ float min_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float x;
  asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(x) : \"f\"(a), \"f\"(b));
  return x;
#else
  return a < b || a != a ? a : b;
#endif
}
";

/// 1, 0 or -1, and NaN of NaN.
const SIGN: &str = "\
static __device__ __forceinline__ float sign(float x) {
  return x != x ? x : (float)((x > 0.0f) - (x < 0.0f));
}
";

/// The value of the lane of the warp whose number differs by a mask (a shuffle).
const LANES: &str = "\
static __device__ __forceinline__ float of_lane(float x, int mask) { return \
__uint_as_float(__shfl_xor_sync(0xffffffffu, __float_as_uint(x), mask)); }
";

/// Powers by the multiprocessor's own instruction, of relative error 2^-22 at exponents near 0; an
/// exponent below -126 gives 0. Powers of e lose a bit more for each doubling of the exponent:
/// 2^-16 at -80, where the result is 2e-35.
const POWERS: &str = "\
static __device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));
  return y;
}
";

/// Copies to shared memory that do not pass through registers, where the device has them; they have
/// arrived at the next barrier, or once their batch is awaited. Where `valid` does not hold, zeros
/// are written.
const COPIES: &str = "\
static __device__ __forceinline__ void copy4(float *to, const float *from, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile(\"cp.async.ca.shared.global [%0], [%1], 4, %2;\" \
  :: \"r\"((unsigned)__cvta_generic_to_shared(to)), \"l\"(from), \"r\"(valid ? 4 : 0) : \"memory\");
#else
  *to = valid ? *from : 0.0f;
#endif
}
static __device__ __forceinline__ void copy8(void *to, const void *from, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile(\"cp.async.ca.shared.global [%0], [%1], 8, %2;\" \
  :: \"r\"((unsigned)__cvta_generic_to_shared(to)), \"l\"(from), \"r\"(valid ? 8 : 0) : \"memory\");
#else
  *(float2 *)to = valid ? *(const float2 *)from : make_float2(0.0f, 0.0f);
#endif
}
static __device__ __forceinline__ void copy16(void *to, const void *from, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" \
  :: \"r\"((unsigned)__cvta_generic_to_shared(to)), \"l\"(from), \"r\"(valid ? 16 : 0) \
  : \"memory\");
#else
  *(float4 *)to = valid ? *(const float4 *)from : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#endif
}
static __device__ __forceinline__ void copies_arrive() {
#if __CUDA_ARCH__ >= 800
  asm volatile(\"cp.async.wait_all;\" ::: \"memory\");
#endif
}
static __device__ __forceinline__ void copies_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile(\"cp.async.commit_group;\" ::: \"memory\");
#endif
}
template <int LAST> static __device__ __forceinline__ void copies_await() {
#if __CUDA_ARCH__ >= 800
  asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(LAST) : \"memory\");
#endif
}
";

/// TMA tiles, which tensor maps describe and the copy engine brings to shared memory; rows are
/// swizzled by 128 bytes. One of eight barriers counts the bytes of a batch; its phase ends when
/// the batch is committed and all its bytes have arrived.
const TMA_TILES: &str = "\
struct __align__(64) tensor_map { unsigned long long opaque[16]; };
static __device__ __forceinline__ bool elected() {
  unsigned me;
  asm volatile(\"{\\n.reg .pred p;\\nelect.sync _|p, 0xffffffff;\\nselp.u32 %0, 1, 0, p;\\n}\" \
  : \"=r\"(me));
  return me;
}
static __device__ __forceinline__ void tma_begin(unsigned long long *arrived) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < 8; i++) asm volatile(\"mbarrier.init.shared::cta.b64 [%0], 1;\" \
    :: \"r\"((unsigned)__cvta_generic_to_shared(arrived + i)) : \"memory\");
    asm volatile(\"fence.mbarrier_init.release.cluster;\" ::: \"memory\");
  }
  __syncthreads();
}
static __device__ __forceinline__ void tma_commit(unsigned long long *arrived) {
  asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0];\" \
  :: \"r\"((unsigned)__cvta_generic_to_shared(arrived)) : \"memory\");
}
static __device__ __forceinline__ void tma_await(unsigned long long *arrived, unsigned phase) {
  asm volatile(\"{\\n.reg .pred p;\\nagain%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], \
  %1;\\n@!p bra again%=;\\n}\"
    :: \"r\"((unsigned)__cvta_generic_to_shared(arrived)), \"r\"(phase) : \"memory\");
}
#define TMA_COPY(dimensions, list, parameters, ...) \\
static __device__ __forceinline__ void tma_copy(void *to, const tensor_map &map, unsigned long \
long *arrived, unsigned bytes, parameters) { \\
  asm volatile(\"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], \
  %1;\\ncp.async.bulk.tensor.\" dimensions \\
    \".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%2], [%3, {\" list \"}], [%0];\" \\
    :: \"r\"((unsigned)__cvta_generic_to_shared(arrived)), \"r\"(bytes), \
\"r\"((unsigned)__cvta_generic_to_shared(to)), \"l\"(&map), __VA_ARGS__ : \"memory\"); \\
}
#define AND ,
TMA_COPY(\"1d\", \"%4\", int a, \"r\"(a))
TMA_COPY(\"2d\", \"%4, %5\", int a AND int b, \"r\"(a), \"r\"(b))
TMA_COPY(\"3d\", \"%4, %5, %6\", int a AND int b AND int c, \"r\"(a), \"r\"(b), \"r\"(c))
TMA_COPY(\"4d\", \"%4, %5, %6, %7\", int a AND int b AND int c AND int \
d, \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d))
TMA_COPY(\"5d\", \"%4, %5, %6, %7, %8\", int a AND int b AND int c AND int d AND int \
e, \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d), \"r\"(e))
#undef AND
";

/// Where an element lies in rows of 128 bytes whose pieces of 16 are swizzled: in elements of 2
/// bytes. A thread's places in a row are kept, all four that 32 bytes are apart: the compiler would
/// work each out anew in every step.
const SWIZZLED: &str = "\
static __device__ __forceinline__ int swizzled2(int at) { return at ^ (at >> 3 & 56); }
static __device__ __forceinline__ void lines_at(unsigned *lines, const void *place) {
  for (int i = 0; i < 4; i++) {
    lines[i] = (unsigned)__cvta_generic_to_shared(place) ^ 32*i;
    asm(\"\" : \"+r\"(lines[i]));
  }
}
";

/// Products of warpgroups, of factors in shared memory. A factor is described by where
/// its rows begin, in 16 bytes, that eight rows of 128 bytes are 1,024 (of columns where they lie
/// across, and 64 of their rows are 8,192 further then), and that they are swizzled by 128 bytes.
/// Of an address the block's number in its cluster is left out.
const WARPGROUPS: &str = "\
static __device__ __forceinline__ unsigned long long swizzled_rows(const void *first, unsigned \
long long leading) {
  return (unsigned long long)(((unsigned)__cvta_generic_to_shared(first) & 0x3FFFF) >> 4) | \
  leading << 16 | 64ull << 32 | 1ull << 62;
}
static __device__ __forceinline__ void products_see() { asm \
volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\"); }
static __device__ __forceinline__ void products_begin() { asm \
volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\"); }
static __device__ __forceinline__ void products_commit() { asm \
volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\"); }
template <int LAST> static __device__ __forceinline__ void products_await() {
  asm volatile(\"wgmma.wait_group.sync.aligned %0;\" :: \"n\"(LAST) : \"memory\");
}
static __device__ __forceinline__ void product_done(float &x) { asm volatile(\"\" : \"+f\"(x) \
:: \"memory\"); }
";

/// Orders the writes of threads to a register of the first factor before the products that read it.
const HELD_FACTORS: &str = "\
static __device__ __forceinline__ void factor_made(unsigned &x) { asm volatile(\"\" : \"+r\"(x) \
:: \"memory\"); }
";

/// The instruction (`wgmma`) that multiplies 64 rows by a number of columns, 16 deep, with factors
/// that may lie transposed, or the first of which lies in registers.
fn warpgroup_product(format: &str, columns: i64, across: [bool; 2], form: ProductForm) -> String {
    let (registers, [a, b]) = (columns / 2, across.map(i64::from));
    let is_held = form == ProductForm::Held;
    let list = |f: &dyn Fn(i64) -> String| (0..registers).map(f).collect::<Vec<_>>().join(", ");
    let (names, sums) = (list(&|i| format!("%{i}")), list(&|i| format!("\"+f\"(c[{i}])")));
    let adds = i64::from(form != ProductForm::Replacing);
    let held = |from: i64| (0..4).map(|i| format!("%{}", from + i)).collect::<Vec<_>>().join(", ");
    let (ty, first, second, factor, turned) = match is_held {
        true => (
            "const unsigned *",
            format!("{{{}}}", held(registers)),
            registers + 4,
            (0..4).map(|i| format!("\"r\"(a[{i}])")).collect::<Vec<_>>().join(", "),
            format!("{b}"),
        ),
        false => (
            "unsigned long long ",
            format!("%{registers}"),
            registers + 1,
            "\"l\"(a)".to_string(),
            format!("{a}, {b}"),
        ),
    };
    let word = form.word();
    format!(
        "template <int N, int A, int B> __device__ __forceinline__ void group_{word}{format}(float \
         *c, {ty}a, unsigned long long b);\n\
         template <> __device__ __forceinline__ void group_{word}{format}<{columns}, {a}, \
         {b}>(float *c, {ty}a, unsigned long long b) {{\n  \
         asm volatile(\"{{\\n.reg .pred p;\\nsetp.ne.b32 p, {adds}, 0;\\n\"\n    \
         \"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{format}.{format} {{{names}}}, \
         {first}, %{second}, p, 1, 1, {turned};\\n}}\"\n    \
         : {sums} : {factor}, \"l\"(b));\n}}\n"
    )
}
