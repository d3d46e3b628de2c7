/* One step of heat in a plate: every inner point becomes a mean of itself and its four neighbours.
 * In tiles of TILE_Y x TILE_X points; the rim stays as it was. */
#define PRAGMA(words) _Pragma(#words)
#define UNROLLED(times) PRAGMA(GCC unroll times)
#define LEAST(a, b) ((a) < (b) ? (a) : (b))

void stencil(int h, int w, const float *restrict x, float *restrict y) {
  for (int j = 0; j < w; j++) {
    y[j] = x[j];
    y[(h - 1) * w + j] = x[(h - 1) * w + j];
  }
  for (int i = 0; i < h; i++) {
    y[i * w] = x[i * w];
    y[i * w + w - 1] = x[i * w + w - 1];
  }
  for (int i0 = 1; i0 < h - 1; i0 += TILE_Y)
    for (int j0 = 1; j0 < w - 1; j0 += TILE_X)
      for (int i = i0; i < LEAST(i0 + TILE_Y, h - 1); i++) {
        UNROLLED(UNROLL)
        for (int j = j0; j < LEAST(j0 + TILE_X, w - 1); j++)
          y[i * w + j] = 0.5f * x[i * w + j] + 0.125f * (x[(i - 1) * w + j] + x[(i + 1) * w + j] + x[i * w + j - 1] + x[i * w + j + 1]);
      }
}
