/* The stencil as one would write it first. */
void plain(int h, int w, const float *restrict x, float *restrict y) {
  for (int i = 0; i < h; i++)
    for (int j = 0; j < w; j++) {
      int rim = i == 0 || j == 0 || i == h - 1 || j == w - 1;
      y[i * w + j] = rim ? x[i * w + j] : 0.5f * x[i * w + j] + 0.125f * (x[(i - 1) * w + j] + x[(i + 1) * w + j] + x[i * w + j - 1] + x[i * w + j + 1]);
    }
}
