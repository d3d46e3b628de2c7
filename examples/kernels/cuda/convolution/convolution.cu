/* A filter over an image that is larger than the result by the filter's borders. A block fetches its
 * part of the image into shared memory once; a thread computes TILE_X x TILE_Y results, BLOCK_X and
 * BLOCK_Y apart, so that neighbours in a warp stay neighbours in memory. */
#define FILTER_H 17
#define FILTER_W 17
#define PART_H (BLOCK_Y * TILE_Y + FILTER_H - 1)
#define PART_W (BLOCK_X * TILE_X + FILTER_W - 1)
/* Rows of the fetched part begin in another memory bank where PADDING is 1. */
#define PITCH (PART_W + PADDING)

#if READ_ONLY
#define READ(x) __ldg(&(x))
#else
#define READ(x) (x)
#endif

extern "C" __global__ void __launch_bounds__(BLOCK_X *BLOCK_Y)
convolution(const float *__restrict__ image, const float *__restrict__ filter, float *__restrict__ result, int h, int w) {
  __shared__ float part[PART_H][PITCH];
  const int x0 = blockIdx.x * (BLOCK_X * TILE_X), y0 = blockIdx.y * (BLOCK_Y * TILE_Y);
  const int image_w = w + FILTER_W - 1, image_h = h + FILTER_H - 1;
  for (int y = threadIdx.y; y < PART_H; y += BLOCK_Y)
    for (int x = threadIdx.x; x < PART_W; x += BLOCK_X)
      part[y][x] = y0 + y < image_h && x0 + x < image_w ? image[(long long)(y0 + y) * image_w + x0 + x] : 0.0f;
  __syncthreads();

  /* A pragma takes constants; nvcc knows no macros there. */
  constexpr int unroll = UNROLL;
  float sum[TILE_Y][TILE_X] = {};
  for (int i = 0; i < FILTER_H; i++) {
#pragma unroll unroll
    for (int j = 0; j < FILTER_W; j++) {
      const float f = READ(filter[i * FILTER_W + j]);
#pragma unroll
      for (int y = 0; y < TILE_Y; y++)
#pragma unroll
        for (int x = 0; x < TILE_X; x++) sum[y][x] += part[threadIdx.y + y * BLOCK_Y + i][threadIdx.x + x * BLOCK_X + j] * f;
    }
  }
#pragma unroll
  for (int y = 0; y < TILE_Y; y++)
#pragma unroll
    for (int x = 0; x < TILE_X; x++) {
      const int row = y0 + threadIdx.y + y * BLOCK_Y, column = x0 + threadIdx.x + x * BLOCK_X;
      if (row < h && column < w) result[(long long)row * w + column] = sum[y][x];
    }
}
