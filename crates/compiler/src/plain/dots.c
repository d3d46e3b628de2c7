/* to[r * step + c] += the sum over i < k of rows[r][i] * columns[c * k + i], for `count` rows and
   `wide` columns. Tiles of rows and columns are summed in registers, lanes along the sum. Where
   `turned` is not 0, the last columns come first: of columns that are multiplied again and again
   and are larger than a cache, every second time the other way around, that cache still holds those
   that come first. */
#ifdef __CUDACC__
static void dot_matrix(const float **rows, long count, const float *columns, long wide,
                       long k, float *to, long step, long turned) {
  (void)turned;
  for (long r = 0; r < count; r++)
    for (long c = 0; c < wide; c++) {
      float s = 0;
      for (long i = 0; i < k; i++) s = madf(rows[r][i], columns[c * k + i], s);
      to[r * step + c] += s;
    }
}
#else
static inline __attribute__((always_inline)) void dot_tile(
    int m, int n, const float **rows, const float *columns, long k, float *to, long step) {
  lanes sums[6][8];
  WRITTEN_OUT for (int r = 0; r < m; r++)
    WRITTEN_OUT for (int c = 0; c < n; c++) sums[r][c] = (lanes){0};
  const long whole = k / LANE_COUNT * LANE_COUNT;
  for (long i = 0; i < whole; i += LANE_COUNT) {
    lanes b[8];
    WRITTEN_OUT for (int c = 0; c < n; c++) {
      b[c] = load_lanes(columns + c * k + i);
      if (m > 1) KEPT(b[c]);
    }
    WRITTEN_OUT for (int r = 0; r < m; r++) {
      const lanes a = load_lanes(rows[r] + i);
      WRITTEN_OUT for (int c = 0; c < n; c++) sums[r][c] = mad_lanes(a, b[c], sums[r][c]);
    }
  }
  WRITTEN_OUT for (int r = 0; r < m; r++) {
    WRITTEN_OUT for (int c = 0; c < n; c += 4) {
      float four[4];
      sum_four(&sums[r][c], four);
      WRITTEN_OUT for (int l = 0; l < 4; l++) to[r * step + c + l] += four[l];
    }
    if (whole < k)
      for (int c = 0; c < n; c++)
        for (long j = whole; j < k; j++)
          to[r * step + c] = madf(rows[r][j], columns[c * k + j], to[r * step + c]);
  }
}
/* The columns behind the last whole tile. */
static void dot_rest(const float *row, const float *column, long k, float *to) {
  lanes sums[4] = {{0}, {0}, {0}, {0}};
  float four[4];
  const long whole = k / (4 * LANE_COUNT) * 4 * LANE_COUNT;
  for (long i = 0; i < whole; i += 4 * LANE_COUNT)
    WRITTEN_OUT for (int l = 0; l < 4; l++) sums[l] = mad_lanes(
        load_lanes(row + i + l * LANE_COUNT), load_lanes(column + i + l * LANE_COUNT), sums[l]);
  sum_four(sums, four);
  float s = (four[0] + four[1]) + (four[2] + four[3]);
  for (long i = whole; i < k; i++) s = madf(row[i], column[i], s);
  *to += s;
}
static inline __attribute__((always_inline)) void dot_rows(
    int m, const float **rows, const float *columns, long k, long wide, float *to, long step) {
  const int n = m == 1 ? 8 : 4;
  long c = 0;
  for (; c + n <= wide; c += n) dot_tile(m, n, rows, columns + c * k, k, to + c, step);
  for (; c < wide; c++)
    for (int r = 0; r < m; r++) dot_rest(rows[r], columns + c * k, k, to + r * step + c);
}
static void dot_matrix(const float **rows, long count, const float *columns, long wide,
                       long k, float *to, long step, long turned) {
  /* Columns that the nearest cache holds meet all rows. */
  const long part = 4096 / (k < 1 ? 1 : k > 512 ? 512 : k) / 8 * 8 + 8;
  const long all = (wide + part - 1) / part;
  for (long at = 0; at < all; at++) {
    const long from = (turned ? all - 1 - at : at) * part;
    const long own = wide - from < part ? wide - from : part;
    const float *b = columns + from * k;
    float *t = to + from;
    long r = 0;
#if LANE_COUNT == 16
    for (; r + 6 <= count; r += 6) dot_rows(6, rows + r, b, k, own, t + r * step, step);
    for (; r + 4 <= count; r += 4) dot_rows(4, rows + r, b, k, own, t + r * step, step);
#endif
    for (; r + 2 <= count; r += 2) dot_rows(2, rows + r, b, k, own, t + r * step, step);
    for (; r < count; r++) dot_rows(1, rows + r, b, k, own, t + r * step, step);
  }
}
#endif
