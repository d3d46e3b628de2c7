//! Device functions of ours that CUDA sources begin with, where they use them.

/// Reads an element of another block's shared memory.
pub const PEER: &str = "\
static __device__ __forceinline__ float peer(const float *p, unsigned rank) {
  unsigned here = (unsigned)__cvta_generic_to_shared(p), there;
  float x;
  asm(\"mapa.shared::cluster.u32 %0, %1, %2;\" : \"=r\"(there) : \"r\"(here), \"r\"(rank));
  asm volatile(\"ld.shared::cluster.f32 %0, [%1];\" : \"=f\"(x) : \"r\"(there) : \"memory\");
  return x;
}
static __device__ __forceinline__ void cluster_barrier() {
  asm volatile(\"barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;\" ::: \"memory\");
}
";

/// Copies to shared memory that do not pass through registers, where the device has them; they
/// have arrived at the next barrier. Where `valid` does not hold, zeros are written.
pub const COPIES: &str = "\
static __device__ __forceinline__ void copy4(float *to, const float *from, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile(\"cp.async.ca.shared.global [%0], [%1], 4, %2;\" :: \"r\"((unsigned)__cvta_generic_to_shared(to)), \"l\"(from), \"r\"(valid ? 4 : 0) : \"memory\");
#else
  *to = valid ? *from : 0.0f;
#endif
}
static __device__ __forceinline__ void copy16(float *to, const float *from) {
#if __CUDA_ARCH__ >= 800
  asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16;\" :: \"r\"((unsigned)__cvta_generic_to_shared(to)), \"l\"(from) : \"memory\");
#else
  *(float4 *)to = *(const float4 *)from;
#endif
}
static __device__ __forceinline__ void copies_arrive() {
#if __CUDA_ARCH__ >= 800
  asm volatile(\"cp.async.wait_all;\" ::: \"memory\");
#endif
}
";
