/* C = A B as one would write it first. */
void plain(int m, int n, int k, const float *restrict a, const float *restrict b, float *restrict c) {
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < n; j++) c[i * n + j] = 0;
    for (int p = 0; p < k; p++)
      for (int j = 0; j < n; j++) c[i * n + j] += a[i * k + p] * b[p * n + j];
  }
}
