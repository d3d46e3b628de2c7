/* to[r * step + c] += the sum over i < k of rows[r][i] * columns[c * k + i], for `count` rows and
   `wide` columns, which are packed into `panel`, memory for 64 columns of at most 512 elements,
   just before all rows are multiplied by them: the panel is in the cache as yet. */
#ifdef __CUDACC__
static void columns_matrix(const float **rows, long count, const float *columns, long wide, long k,
                           float *to, long step, float *panel) {
  (void)panel;
  matrix_by_loops(rows, count, columns, wide, k, to, step);
}
#else
static void columns_matrix(const float **rows, long count, const float *columns, long wide, long k,
                           float *to, long step, float *panel) {
  for (long begin = 0; begin < k; begin += PANEL_DEPTH) {
    const long depth = k - begin < PANEL_DEPTH ? k - begin : PANEL_DEPTH;
    for (long c = 0, own; c < wide; c += own) {
      own = panel_columns(wide - c);
      pack_columns(columns + c * k + begin, own, k, depth, panel);
      packed_panel(rows, count, begin, panel, own, depth, to + c, step);
    }
  }
}
#endif
