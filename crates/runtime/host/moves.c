/* Moves of data in a network's run: copies along axes (transposes, slices, conversions), runs,
 * fills. moves.h has the interface. Programs compile this file by itself, because its build is
 * compared with an independent one first. */
#include "moves.h"
#include "element.h"
#include <string.h>

/* The two innermost axes where the source is contiguous along one and the target along the other:
 * in squares, so that each line of the cache is used whole, but where a few runs are woven into
 * one, as a shuffle of channels does; and any two axes. One text a size of elements, since the
 * compiler must know it. */
#define RT_MOVES_OF(NAME, T)                                                                       \
  static inline void NAME##_weave(const T *from, T *to, size_t extent, ptrdiff_t apart, int n) {   \
    for (size_t i = 0; i < extent; i++, to += n)                                                   \
      for (int k = 0; k < n; k++) to[k] = from[k * apart + (ptrdiff_t)i];                          \
  }                                                                                                \
  static void NAME##_turn(const T *from, T *to, rt_axis a, rt_axis b) {                            \
    enum { N = 8 };                                                                                \
    size_t i = 0;                                                                                  \
    for (; i + N <= a.extent; i += N) {                                                            \
      size_t k = 0;                                                                                \
      for (; k + N <= b.extent; k += N) {                                                          \
        T square[N][N];                                                                            \
        for (size_t y = 0; y < N; y++)                                                             \
          memcpy(square[y], from + (ptrdiff_t)(k + y) * b.from + (ptrdiff_t)i, sizeof square[y]);  \
        for (size_t x = 0; x < N; x++) {                                                           \
          T *row = to + (i + x) * a.to + k;                                                        \
          for (size_t y = 0; y < N; y++) row[y] = square[y][x];                                    \
        }                                                                                          \
      }                                                                                            \
      for (; k < b.extent; k++)                                                                    \
        for (size_t x = 0; x < N; x++)                                                             \
          to[(i + x) * a.to + k] = from[(ptrdiff_t)k * b.from + (ptrdiff_t)(i + x)];               \
    }                                                                                              \
    for (; i < a.extent; i++)                                                                      \
      for (size_t k = 0; k < b.extent; k++)                                                        \
        to[i * a.to + k] = from[(ptrdiff_t)k * b.from + (ptrdiff_t)i];                             \
  }                                                                                                \
  static void NAME##_rows(const T *from, T *to, rt_axis rows, rt_axis last) {                      \
    if (last.to == 1 && last.from != 1 && rows.from == 1) {                                        \
      ptrdiff_t apart = (ptrdiff_t)last.from;                                                      \
      switch (rows.to == last.extent ? last.extent : 0) {                                          \
      case 2: NAME##_weave(from, to, rows.extent, apart, 2); break;                                \
      case 3: NAME##_weave(from, to, rows.extent, apart, 3); break;                                \
      case 4: NAME##_weave(from, to, rows.extent, apart, 4); break;                                \
      default: NAME##_turn(from, to, rows, last);                                                  \
      }                                                                                            \
      return;                                                                                      \
    }                                                                                              \
    for (size_t r = 0; r < rows.extent; r++, to += rows.to, from += rows.from) {                   \
      if (last.to == 1 && last.from == 1) memcpy(to, from, last.extent * sizeof *to);              \
      else                                                                                         \
        for (size_t i = 0; i < last.extent; i++) to[i * last.to] = from[(ptrdiff_t)i * last.from]; \
    }                                                                                              \
  }

/* Elements are moved as integers of their size, whatever their type. */
typedef uint8_t __attribute__((may_alias)) rt_move_1;
typedef uint16_t __attribute__((may_alias)) rt_move_2;
typedef uint32_t __attribute__((may_alias)) rt_move_4;
typedef uint64_t __attribute__((may_alias)) rt_move_8;
RT_MOVES_OF(rt_1, rt_move_1)
RT_MOVES_OF(rt_2, rt_move_2)
RT_MOVES_OF(rt_4, rt_move_4)
RT_MOVES_OF(rt_8, rt_move_8)

/* The two innermost axes of a copy that converts. The inner loop of adjacent elements has a text of
 * its own, of which compilers make vectors. */
#define RT_CASTS_OF(NAME, F, T, MADE)                                                              \
  static void NAME(const F *from, T *to, rt_axis rows, rt_axis last) {                             \
    for (size_t r = 0; r < rows.extent; r++, to += rows.to, from += rows.from) {                   \
      if (last.to == 1 && last.from == 1)                                                          \
        for (size_t i = 0; i < last.extent; i++) to[i] = MADE(from[i]);                            \
      else                                                                                         \
        for (size_t i = 0; i < last.extent; i++)                                                   \
          to[i * last.to] = MADE(from[(ptrdiff_t)i * last.from]);                                  \
    }                                                                                              \
  }
#define RT_WIDENED(x) ((uint32_t)(x) << 16)
RT_CASTS_OF(rt_narrow, rt_move_4, rt_move_2, rt_bf16)
RT_CASTS_OF(rt_widen, rt_move_2, rt_move_4, RT_WIDENED)
RT_CASTS_OF(rt_narrow_f16, rt_move_4, rt_move_2, rt_f16)
RT_CASTS_OF(rt_widen_f16, rt_move_2, rt_move_4, rt_of_f16)

/* A copy between two buffers, as its tasks see it. */
typedef struct {
  const rt_move *move;
  const unsigned char *from;
  unsigned char *to;
  size_t instances, tasks;
} copying;

/* One instance of the outer axes of a copy: all of its last two. */
static void piece_of(const rt_move *m, const unsigned char *f, unsigned char *t) {
  rt_axis rows = m->axes[m->rank - 2], last = m->axes[m->rank - 1];
  if (m->size < m->from_size) {
    (m->f16 ? rt_narrow_f16 : rt_narrow)((const rt_move_4 *)f, (rt_move_2 *)t, rows, last);
    return;
  }
  if (m->size > m->from_size) {
    (m->f16 ? rt_widen_f16 : rt_widen)((const rt_move_2 *)f, (rt_move_4 *)t, rows, last);
    return;
  }
  switch (m->size) {
  case 1: rt_1_rows((const rt_move_1 *)f, (rt_move_1 *)t, rows, last); break;
  case 2: rt_2_rows((const rt_move_2 *)f, (rt_move_2 *)t, rows, last); break;
  case 4: rt_4_rows((const rt_move_4 *)f, (rt_move_4 *)t, rows, last); break;
  default: rt_8_rows((const rt_move_8 *)f, (rt_move_8 *)t, rows, last); break;
  }
}

/* A task's instances, whose places are counted up: a division for each would cost more than it
 * moves where pieces are small. */
static void some_pieces(void *argument, size_t number) {
  const copying *c = (const copying *)argument;
  const rt_move *m = c->move;
  size_t first = c->instances * number / c->tasks, end = c->instances * (number + 1) / c->tasks;
  uint64_t place[RT_AXES + 2];
  ptrdiff_t to = 0, from = 0;
  for (size_t a = m->rank - 2, rest = first; a-- > 0;) {
    place[a] = rest % m->axes[a].extent;
    rest /= m->axes[a].extent;
    to += (ptrdiff_t)(place[a] * m->axes[a].to);
    from += (ptrdiff_t)place[a] * m->axes[a].from;
  }
  for (size_t i = first; i < end; i++) {
    piece_of(m, c->from + from * (ptrdiff_t)m->from_size, c->to + to * (ptrdiff_t)m->size);
    for (size_t a = m->rank - 2; a-- > 0;) {
      to += (ptrdiff_t)m->axes[a].to;
      from += m->axes[a].from;
      if (++place[a] < m->axes[a].extent) break;
      to -= (ptrdiff_t)(place[a] * m->axes[a].to);
      from -= (ptrdiff_t)place[a] * m->axes[a].from;
      place[a] = 0;
    }
  }
}

static void copy(copying *c, const rt_pool *pool) {
  enum { WORTH_THREADS = 32768 };
  const rt_move *m = c->move;
  size_t inner = m->axes[m->rank - 2].extent * m->axes[m->rank - 1].extent;
  c->instances = 1;
  c->tasks = 1;
  for (size_t a = 0; a + 2 < m->rank; a++) c->instances *= m->axes[a].extent;
  if (!pool || pool->tasks < 2 || c->instances < 2 || c->instances * inner <= WORTH_THREADS) {
    some_pieces(c, 0);
    return;
  }
  c->tasks = pool->tasks;
  pool->parallel_for(pool->state, c->tasks, some_pieces, c);
}

/* The axes of a copy, two at least: rows of one element, or one row. The axis along which the
 * source is contiguous goes next to the innermost, where squares are turned. */
static void arrange(rt_move *m, const rt_step *step) {
  uint32_t missing = step->rank < 2 ? 2 - step->rank : 0;
  for (uint32_t a = 0; a < missing; a++) m->axes[a] = (rt_axis){1, 1, 1};
  memcpy(m->axes + missing, step->axes, step->rank * sizeof *m->axes);
  m->rank = step->rank + missing;
  if (m->rank < 3 || m->axes[m->rank - 1].from == 1) return;
  for (uint32_t a = 0; a + 2 < m->rank; a++) {
    if (m->axes[a].from != 1) continue;
    rt_axis swap = m->axes[a];
    m->axes[a] = m->axes[m->rank - 2];
    m->axes[m->rank - 2] = swap;
    return;
  }
}

void rt_move_ready(rt_move *m, const rt_step *s, rt_moved from, rt_moved to) {
  const size_t from_size = from.size, size = to.size;
  memset(m, 0, sizeof *m);
  m->kind = s->kind;
  m->f16 = from.is_f16 || to.is_f16;
  m->size = size;
  m->from_size = from_size;
  m->from_at = s->kind == RT_FILL ? 0 : s->from_at * from_size;
  m->to_at = s->to_at * size;
  m->count = s->count;
  m->runs = s->runs;
  memcpy(m->value, s->value, sizeof m->value);
  if (s->kind == RT_COPY) arrange(m, s);
}

void rt_move_run(const rt_move *m, const void *source, void *target, const rt_pool *pool) {
  unsigned char *to = (unsigned char *)target + m->to_at;
  if (m->kind == RT_FILL) {
    for (uint64_t i = 0; i < m->count; i++) memcpy(to + i * m->size, m->value, m->size);
    return;
  }
  const unsigned char *from = (const unsigned char *)source + m->from_at;
  if (m->kind == RT_COPY) {
    copying c = {.move = m, .from = from, .to = to};
    copy(&c, pool);
    return;
  }
  for (uint64_t i = 0; i < m->count; i++) {
    const uint64_t *run = m->runs + 3 * i;
    memcpy(to + run[0] * m->size, from + run[1] * m->size, run[2] * m->size);
  }
}
