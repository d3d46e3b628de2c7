/* to[r * step + c] += the sum over i < k of rows[r][i] * columns[c * k + i], for `count` rows and
   `wide` columns that `pack_columns` wrote to `panels`. Where `turned` is not 0, the last panel
   comes first: of weights that are multiplied again and again and are larger than a cache, every
   second time the other way around, that cache still holds the panels that come first. */
#ifdef __CUDACC__
static void pack_columns(const float *columns, long wide, long k, long depth, float *panels) {
  for (long c = 0; c < wide; c++)
    for (long i = 0; i < depth; i++) panels[c * depth + i] = columns[c * k + i];
}
static void packed_matrix(const float **rows, long count, const float *panels, long wide, long k,
                          float *to, long step, long turned) {
  (void)turned;
  matrix_by_loops(rows, count, panels, wide, k, to, step);
}
#else
static void packed_matrix(const float **rows, long count, const float *panels, long wide, long k,
                          float *to, long step, long turned) {
  const long whole = wide / PANEL_COLUMNS;
  const long all = whole + (wide % PANEL_COLUMNS + LANE_COUNT - 1) / LANE_COUNT;
  /* A part of a panel that the cache holds meets all rows. */
  const long deep = count <= PANEL_ROWS || k <= PANEL_DEPTH ? k : PANEL_DEPTH;
  for (long begin = 0; begin < k; begin += deep) {
    const long depth = k - begin < deep ? k - begin : deep;
    for (long at = 0; at < all; at++) {
      const long p = turned ? all - 1 - at : at;
      const long narrow = p < whole ? 0 : p - whole, each = p < whole ? PANEL_COLUMNS : LANE_COUNT;
      const long c = (p - narrow) * PANEL_COLUMNS + narrow * LANE_COUNT;
      packed_panel(rows, count, begin, panels + c * k + begin * each, panel_columns(wide - c),
                   depth, to + c, step);
    }
  }
}
#endif
