// What a GPU's roof is measured with (roof.h): multiplications and additions in registers, a copy
// through memory, reads of what the second-level cache holds.
extern "C" __global__ void fused(float *out, float a, float b, int n) {
  float x[16];
#pragma unroll
  for (int j = 0; j < 16; j++) x[j] = (float)(threadIdx.x + j);
  for (int i = 0; i < n; i++) {
#pragma unroll
    for (int j = 0; j < 16; j++) x[j] = x[j] * a + b;
  }
  float sum = 0;
#pragma unroll
  for (int j = 0; j < 16; j++) sum += x[j];
  // Never true, which the compiler cannot know.
  if (sum == 0.12345f) out[0] = sum;
}

extern "C" __global__ void copy(const float4 *__restrict__ from, float4 *__restrict__ to, long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  // Several loads are under way before the first store.
  for (; i + 3 * step < n; i += 4 * step) {
    const float4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a;
    to[i + step] = b;
    to[i + 2 * step] = c;
    to[i + 3 * step] = d;
  }
  for (; i < n; i += step) to[i] = from[i];
}

extern "C" __global__ void reads(const float4 *from, float *out, long long n, int times) {
  const long long step = (long long)gridDim.x * blockDim.x;
  float sum = 0;
  for (int t = 0; t < times; t++)
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
      const float4 v = __ldcg(&from[i]);
      sum += v.x + v.y + v.z + v.w;
    }
  if (sum == 0.12345f) out[0] = sum;
}
