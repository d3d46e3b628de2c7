/* y = a x + y, to begin with: blocks of BLOCK threads, each of which takes EACH elements of width
 * VECTOR, a block apart. */
template <int VECTOR> struct vector;
template <> struct vector<1> { using type = float; };
template <> struct vector<2> { using type = float2; };
template <> struct vector<4> { using type = float4; };

template <int VECTOR>
__global__ void __launch_bounds__(BLOCK) axpy(long long n, float a, const float *x, float *y) {
  using wide = typename vector<VECTOR>::type;
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const long long i = VECTOR * (((long long)blockIdx.x * EACH + e) * BLOCK + threadIdx.x);
    if (i >= n) return;
    wide xs = *(const wide *)(x + i), ys = *(const wide *)(y + i);
#pragma unroll
    for (int j = 0; j < VECTOR; j++) ((float *)&ys)[j] += a * ((const float *)&xs)[j];
    *(wide *)(y + i) = ys;
  }
}

/* What is right: one element a thread. */
__global__ void plain(long long n, float a, const float *x, float *y) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
