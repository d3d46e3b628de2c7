/* The products of `count` rows of weights with a panel of `depth` rows of 64 elements: 64 sums of
   each row, begun with `begin[r]` (0 where that is NULL), of which the first `wide` are stored. */
#ifdef __CUDACC__
static void panel_products(const float *weights, long count, const float *panel, long depth,
                           const float *begin, float *to, long step, long wide) {
  for (long r = 0; r < count; r++)
    for (long n = 0; n < wide; n++) {
      float s = begin ? begin[r] : 0;
      for (long k = 0; k < depth; k++) s = madf(weights[r * depth + k], panel[k * 64 + n], s);
      to[r * step + n] = s;
    }
}
#else
static inline __attribute__((always_inline)) void panel_tile(int m, const float *weights,
                                                             const float *panel, long depth,
                                                             float *sums) {
  enum { VECTORS = LANE_COUNT == 16 ? 4 : 2 };
  for (int part = 0; part < 64; part += VECTORS * LANE_COUNT) {
    lanes s[4][VECTORS];
    WRITTEN_OUT for (int r = 0; r < m; r++)
      WRITTEN_OUT for (int v = 0; v < VECTORS; v++) s[r][v] = (lanes){0};
    for (long k = 0; k < depth; k++) {
      lanes b[VECTORS];
      WRITTEN_OUT for (int v = 0; v < VECTORS; v++) {
        b[v] = load_lanes(panel + k * 64 + part + v * LANE_COUNT);
        KEPT(b[v]);
      }
      WRITTEN_OUT for (int r = 0; r < m; r++) {
        const lanes a = weights[r * depth + k] - (lanes){0};
        WRITTEN_OUT for (int v = 0; v < VECTORS; v++) s[r][v] = mad_lanes(a, b[v], s[r][v]);
      }
    }
    WRITTEN_OUT for (int r = 0; r < m; r++)
      WRITTEN_OUT for (int v = 0; v < VECTORS; v++)
        store_lanes(sums + r * 64 + part + v * LANE_COUNT, s[r][v]);
  }
}
static void panel_products(const float *weights, long count, const float *panel, long depth,
                           const float *begin, float *to, long step, long wide) {
  for (long from = 0; from < count; from += 4) {
    float sums[4 * 64];
    const long own = count - from < 4 ? count - from : 4;
    const float *w = weights + from * depth;
    if (own == 4) panel_tile(4, w, panel, depth, sums);
    else for (long r = 0; r < own; r++) panel_tile(1, w + r * depth, panel, depth, sums + r * 64);
    for (long r = 0; r < own; r++)
      for (long n = 0; n < wide; n++)
        to[(from + r) * step + n] = sums[r * 64 + n] + (begin ? begin[from + r] : 0);
  }
}
#endif
