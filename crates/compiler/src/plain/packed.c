/* Products of rows with columns that are packed first: into panels of PANEL_COLUMNS columns, then,
   of the columns behind those, panels of LANE_COUNT, the last of which is filled up with zeros. A
   panel holds element i of all its columns side by side, then element i + 1, so that a product
   reads one stretch of memory and a lane is a column: however wide vectors are, each sum has its
   terms in order. The panel that begins with column c begins at element c * depth. Inputs: rows,
   columns and their extents; outputs: panels (`pack_columns`) and sums (`packed_panel`). */
#ifndef __CUDACC__
#define PANEL_COLUMNS (4 * LANE_COUNT)
#define PANEL_DEPTH 512
/* Bits of a lane's number. */
#define LANE_BITS (LANE_COUNT == 16 ? 4 : LANE_COUNT == 8 ? 3 : 2)
/* Rows, and vectors of more than two rows, whose sums with a panel lie in registers. */
#if LANE_COUNT == 16 || defined __aarch64__
#define PANEL_ROWS 6
#define PANEL_VECTORS 4
#elif LANE_COUNT == 8
#define PANEL_ROWS 6
#define PANEL_VECTORS 2
#else
#define PANEL_ROWS 4
#define PANEL_VECTORS 2
#endif
/* Keeps a vector in a register, as KEPT does. It has a name of its own because products by `dots.c`
   are faster without KEPT where a vector has 8 lanes. */
#if defined __AVX__ && !defined __clang__
#define PANEL_KEPT(x) __asm__("" : "+v"(x))
#else
#define PANEL_KEPT(x) (void)0
#endif
/* Writes LANE_COUNT elements of as many columns, element by element. Two halves of a list are
   interleaved again and again: after as many rounds as an index has bits, lanes and vectors have
   changed places. */
static inline __attribute__((always_inline)) void turn_lanes(const float *columns, long k,
                                                             float *to, long step) {
  lanes x[LANE_COUNT], y[LANE_COUNT];
  WRITTEN_OUT for (int i = 0; i < LANE_COUNT; i++) x[i] = load_lanes(columns + i * k);
  WRITTEN_OUT for (int bit = 0; bit < LANE_BITS; bit++) {
    WRITTEN_OUT for (int i = 0; i < LANE_COUNT / 2; i++) {
      y[2 * i] = SHUFFLED(x[i], x[i + LANE_COUNT / 2], LOW_LANES);
      y[2 * i + 1] = SHUFFLED(x[i], x[i + LANE_COUNT / 2], HIGH_LANES);
    }
    WRITTEN_OUT for (int i = 0; i < LANE_COUNT; i++) x[i] = y[i];
  }
  WRITTEN_OUT for (int i = 0; i < LANE_COUNT; i++) store_lanes(to + i * step, x[i]);
}
/* Packs the first `depth` elements of `wide` columns, which are k elements apart. */
static void pack_columns(const float *columns, long wide, long k, long depth, float *panels) {
  const long whole = wide / PANEL_COLUMNS * PANEL_COLUMNS;
  for (long c = 0; c < wide; c += LANE_COUNT) {
    const long own = wide - c < LANE_COUNT ? wide - c : LANE_COUNT, inside = c % PANEL_COLUMNS;
    const long step = c < whole ? PANEL_COLUMNS : LANE_COUNT;
    float *to = panels + (c < whole ? (c - inside) * depth + inside : c * depth);
    const float *from = columns + c * k;
    long i = 0;
    for (; own == LANE_COUNT && i + LANE_COUNT <= depth; i += LANE_COUNT)
      turn_lanes(from + i, k, to + i * step, step);
    for (; i < depth; i++)
      for (long l = 0; l < LANE_COUNT; l++) to[i * step + l] = l < own ? from[l * k + i] : 0;
  }
}
/* Adds the products of m rows with n vectors of a panel that has `all`, as far as its `depth`
   reaches. */
static inline __attribute__((always_inline)) void packed_tile(
    int m, int n, int all, const float **rows, long begin, const float *panel, long depth,
    float *to, long step) {
  lanes sums[6][4];
  WRITTEN_OUT for (int r = 0; r < m; r++)
    WRITTEN_OUT for (int v = 0; v < n; v++)
      sums[r][v] = load_lanes(to + r * step + v * LANE_COUNT);
  for (long i = 0; i < depth; i++) {
    lanes b[4];
    WRITTEN_OUT for (int v = 0; v < n; v++) {
      b[v] = load_lanes(panel + (i * all + v) * LANE_COUNT);
      if (m > 1) PANEL_KEPT(b[v]);
    }
    WRITTEN_OUT for (int r = 0; r < m; r++) {
      const lanes a = rows[r][begin + i] - (lanes){0};
      WRITTEN_OUT for (int v = 0; v < n; v++) sums[r][v] = mad_lanes(a, b[v], sums[r][v]);
    }
  }
  WRITTEN_OUT for (int r = 0; r < m; r++)
    WRITTEN_OUT for (int v = 0; v < n; v++)
      store_lanes(to + r * step + v * LANE_COUNT, sums[r][v]);
}
/* Adds the products of m rows with a panel of n vectors. */
static inline __attribute__((always_inline)) void packed_some(
    int m, int n, const float **rows, long begin, const float *panel, long depth, float *to,
    long step) {
  const int part = m > 2 && n > PANEL_VECTORS ? PANEL_VECTORS : n;
  WRITTEN_OUT for (int v = 0; v < n; v += part)
    packed_tile(m, part, n, rows, begin, panel + v * LANE_COUNT, depth, to + v * LANE_COUNT, step);
}
static inline __attribute__((always_inline)) void packed_rows(
    int n, const float **rows, long count, long begin, const float *panel, long depth, float *to,
    long step) {
  long r = 0;
#if PANEL_ROWS == 6
  for (; r + 6 <= count; r += 6)
    packed_some(6, n, rows + r, begin, panel, depth, to + r * step, step);
#endif
  for (; r + 4 <= count; r += 4)
    packed_some(4, n, rows + r, begin, panel, depth, to + r * step, step);
  for (; r + 2 <= count; r += 2)
    packed_some(2, n, rows + r, begin, panel, depth, to + r * step, step);
  for (; r < count; r++) packed_some(1, n, rows + r, begin, panel, depth, to + r * step, step);
}
/* How many columns the next panel has, where `left` are left. */
static inline long panel_columns(long left) {
  return left >= PANEL_COLUMNS ? PANEL_COLUMNS : left < LANE_COUNT ? left : LANE_COUNT;
}
/* to[r * step + c] += the sum over i < depth of rows[r][begin + i] * element i of column c, for the
   `own` columns of a panel. */
static void packed_panel(const float **rows, long count, long begin, const float *panel, long own,
                         long depth, float *to, long step) {
  if (own == PANEL_COLUMNS) packed_rows(4, rows, count, begin, panel, depth, to, step);
  else if (own == LANE_COUNT) packed_rows(1, rows, count, begin, panel, depth, to, step);
  else
    for (long first = 0; first < count; first += PANEL_ROWS) {
      const long some = count - first < PANEL_ROWS ? count - first : PANEL_ROWS;
      float part[PANEL_ROWS * LANE_COUNT] = {0};
      for (long r = 0; r < some; r++)
        for (long c = 0; c < own; c++) part[r * LANE_COUNT + c] = to[(first + r) * step + c];
      packed_rows(1, rows + first, some, begin, panel, depth, part, LANE_COUNT);
      for (long r = 0; r < some; r++)
        for (long c = 0; c < own; c++) to[(first + r) * step + c] = part[r * LANE_COUNT + c];
    }
}
#endif
