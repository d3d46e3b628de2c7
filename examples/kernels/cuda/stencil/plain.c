/* What is right: one element after another. */
void plain(int d, int h, int w, float rate, const float *x, float *y) {
  long long layer = (long long)h * w;
  for (int z = 0; z < d; z++)
    for (int r = 0; r < h; r++)
      for (int c = 0; c < w; c++) {
        long long p = z * layer + (long long)r * w + c;
        int face = z == 0 || z == d - 1 || r == 0 || r == h - 1 || c == 0 || c == w - 1;
        y[p] = face ? x[p] : x[p] + rate * (x[p - layer] + x[p + layer] + x[p - 1] + x[p + 1] + x[p - w] + x[p + w] - 6.0f * x[p]);
      }
}
