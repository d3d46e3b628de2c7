/* A 7-point stencil over a box, its faces copied: blocks of BLOCK_X x BLOCK_Y columns, each thread going
 * DEEP layers down, the three it needs in registers. */
namespace heat {

__global__ void step(int d, int h, int w, float rate, const float *__restrict__ x, float *__restrict__ y) {
  const int column = blockIdx.x * BLOCK_X + threadIdx.x, row = blockIdx.y * BLOCK_Y + threadIdx.y, first = blockIdx.z * DEEP;
  if (column >= w || row >= h) return;
  const long long layer = (long long)h * w, at = (long long)row * w + column;
  const bool face = column == 0 || column == w - 1 || row == 0 || row == h - 1;
  float above = first > 0 ? x[(first - 1) * layer + at] : 0.0f, here = x[first * layer + at];
#if UNROLL
#pragma unroll
#endif
  for (int i = 0; i < DEEP; i++) {
    const int z = first + i;
    if (z >= d) return;
    const long long p = z * layer + at;
    const float below = z + 1 < d ? x[p + layer] : 0.0f;
    y[p] = face || z == 0 || z == d - 1 ? here : here + rate * (above + below + x[p - 1] + x[p + 1] + x[p - w] + x[p + w] - 6.0f * here);
    above = here;
    here = below;
  }
}

}
