/* to[r * step + c] += the sum over i < k of rows[r][i] * columns[c * k + i], for one GPU thread. */
#ifdef __CUDACC__
static void matrix_by_loops(const float **rows, long count, const float *columns, long wide, long k,
                            float *to, long step) {
  for (long r = 0; r < count; r++)
    for (long c = 0; c < wide; c++)
      for (long i = 0; i < k; i++)
        to[r * step + c] = madf(rows[r][i], columns[c * k + i], to[r * step + c]);
}
#endif
