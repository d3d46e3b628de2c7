/* C = A B by square-ish tiles: sizes are parameters of a template, the depth of a step a macro. A
 * block of (BN / TN) x (BM / TM) threads computes BM x BN of C, a thread TM x TN of that; DEPTH columns
 * of A and rows of B at a time lie in dynamic shared memory. */
template <int BM, int BN, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
matmul(int m, int n, int k, const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c) {
  extern __shared__ float shared[];
  constexpr int threads_x = BN / TN, threads_y = BM / TM, threads = threads_x * threads_y;
  float *part_a = shared, *part_b = shared + DEPTH * (BM + 1);
  const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;
  const int me = threadIdx.y * threads_x + threadIdx.x;
  float sum[TM][TN] = {};
  for (int k0 = 0; k0 < k; k0 += DEPTH) {
    /* A is turned, so that the threads of a warp read neighbours. */
    for (int i = me; i < BM * DEPTH; i += threads) {
      const int row = i / DEPTH, depth = i % DEPTH;
      part_a[depth * (BM + 1) + row] = row0 + row < m && k0 + depth < k ? a[(long long)(row0 + row) * k + k0 + depth] : 0.0f;
    }
    for (int i = me; i < DEPTH * BN; i += threads) {
      const int depth = i / BN, column = i % BN;
      part_b[i] = k0 + depth < k && column0 + column < n ? b[(long long)(k0 + depth) * n + column0 + column] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < DEPTH; depth++) {
      float left[TM], right[TN];
#pragma unroll
      for (int i = 0; i < TM; i++) left[i] = part_a[depth * (BM + 1) + threadIdx.y + i * threads_y];
#pragma unroll
      for (int j = 0; j < TN; j++) right[j] = part_b[depth * BN + threadIdx.x + j * threads_x];
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) sum[i][j] += left[i] * right[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) {
      const int row = row0 + threadIdx.y + i * threads_y, column = column0 + threadIdx.x + j * threads_x;
      if (row < m && column < n) c[(long long)row * n + column] = sum[i][j];
    }
}

/* What is right, slowly: one thread for each result, in double precision. */
__global__ void plain(int m, int n, int k, const float *a, const float *b, float *c) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || column >= n) return;
  double sum = 0;
  for (int i = 0; i < k; i++) sum += (double)a[(long long)row * k + i] * b[(long long)i * n + column];
  c[(long long)row * n + column] = (float)sum;
}
