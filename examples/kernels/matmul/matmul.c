/* C = A B, blocked: a tile of ROWS x COLUMNS sums stays in registers while it runs over a block of
 * DEPTH products. Row-major; sizes need not divide. */
#define LEAST(a, b) ((a) < (b) ? (a) : (b))

void matmul(int m, int n, int k, const float *restrict a, const float *restrict b, float *restrict c) {
  for (int i = 0; i < m * n; i++) c[i] = 0;
  for (int p0 = 0; p0 < k; p0 += DEPTH) {
    int p1 = LEAST(p0 + DEPTH, k);
    for (int i0 = 0; i0 < m; i0 += ROWS)
      for (int j0 = 0; j0 < n; j0 += COLUMNS) {
        if (i0 + ROWS <= m && j0 + COLUMNS <= n) {
          float sum[ROWS][COLUMNS];
          for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++) sum[i][j] = c[(i0 + i) * n + j0 + j];
          for (int p = p0; p < p1; p++)
#pragma GCC unroll 16
            for (int i = 0; i < ROWS; i++)
              for (int j = 0; j < COLUMNS; j++) sum[i][j] += a[(i0 + i) * k + p] * b[p * n + j0 + j];
          for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++) c[(i0 + i) * n + j0 + j] = sum[i][j];
        } else {
          for (int i = i0; i < LEAST(i0 + ROWS, m); i++)
            for (int p = p0; p < p1; p++)
              for (int j = j0; j < LEAST(j0 + COLUMNS, n); j++) c[i * n + j] += a[i * k + p] * b[p * n + j];
        }
      }
  }
}
