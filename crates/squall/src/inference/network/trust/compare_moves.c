/* Compares two builds of the runtime's moves of data (`runtime/host/moves.c`): the usual build
 * and an independent one, on random copies, conversions, runs and fills. Prints "right", or
 * "wrong" and the difference. `trust/moves.rs` builds and runs it. */
#include "guarded.h"
#include "moves.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The independent build. */
void other_move_ready(rt_move *m, const rt_step *s, rt_moved from, rt_moved to);
void other_move_run(const rt_move *m, const void *from, void *to, const rt_pool *pool);

/* Moves that are tried, bytes of a buffer, and seconds after which it is enough. */
enum { MOVES = 8000, BYTES = 1 << 18 };
static const double ENOUGH = 0.5;

static uint64_t below(uint64_t n) { return next() % n; }

/* Where memory of a buffer ends. */
static unsigned char *end_of_buffer(void) { return guarded(BYTES) + BYTES; }

/* An extent: those of small images and one vector more or less. */
static uint64_t extent(void) {
  static const uint64_t some[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64};
  return some[below(sizeof some / sizeof *some)];
}

/* What a copy reads and writes: the elements of both buffers, from the first on. */
typedef struct {
  uint64_t from, to;
} spans;

/* Axes whose elements lie densely in an order of their own on either side, or stand still, or are
 * walked through backwards in the source. */
static spans axes_of(rt_step *s, rt_axis *axes, size_t largest) {
  uint32_t order[2][4];
  spans all = {1, 1};
  for (;;) {
    uint64_t count = 1;
    s->rank = 1 + (uint32_t)below(4);
    for (uint32_t a = 0; a < s->rank; a++) count *= axes[a].extent = extent();
    if (count * largest * 4 <= BYTES) break;
  }
  for (int side = 0; side < 2; side++) {
    uint64_t stride = 1;
    for (uint32_t a = 0; a < s->rank; a++) order[side][a] = a;
    for (uint32_t a = s->rank; a > 1; a--) {
      const uint32_t other = (uint32_t)below(a), kept = order[side][other];
      order[side][other] = order[side][a - 1], order[side][a - 1] = kept;
    }
    for (uint32_t k = 0; k < s->rank; k++) {
      rt_axis *a = &axes[order[side][k]];
      const uint64_t gap = below(8) == 0 ? 1 + below(2) : 1;
      if (side == 0 && below(8) == 0) {
        a->from = 0;
        continue;
      }
      stride *= gap;
      if (side == 1) a->to = stride;
      else a->from = (int64_t)stride;
      stride *= a->extent;
    }
  }
  s->from_at = 0;
  for (uint32_t a = 0; a < s->rank; a++) {
    const uint64_t far = axes[a].extent - 1;
    all.to += far * axes[a].to;
    all.from += far * (uint64_t)axes[a].from;
    if (axes[a].from && below(8) == 0) {
      s->from_at += far * (uint64_t)axes[a].from;
      axes[a].from = -axes[a].from;
    }
  }
  return all;
}

/* Whether the build that networks run is running. */
static volatile sig_atomic_t is_usual;

static void fault(int number) {
  static const char line[] = "wrong it crashes\n";
  (void)number;
  _exit(is_usual && write(1, line, sizeof line - 1) > 0 ? 0 : 3);
}

int main(void) {
  static const size_t sizes[][2] = {{1, 1}, {2, 2}, {4, 4}, {8, 8}, {4, 2}, {2, 4}};
  unsigned char *const end = end_of_buffer();
  unsigned char *const to_end[2] = {end_of_buffer(), end_of_buffer()};
  struct timespec began, now;
  clock_gettime(CLOCK_MONOTONIC, &began);
  alarm(20);
  const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  for (int i = 0; i < 4; i++) signal(faults[i], fault);
  for (int n = 0; n < MOVES; n++) {
    rt_step s;
    rt_axis axes[4] = {{0, 0, 0}};
    uint64_t runs[3 * 4];
    memset(&s, 0, sizeof s);
    const uint64_t kind = below(8);
    const size_t *size = sizes[below(kind < 6 ? 6 : 4)];
    spans all;
    s.axes = axes, s.runs = runs;
    if (kind < 6) {
      s.kind = RT_COPY;
      all = axes_of(&s, axes, 8);
    } else if (kind == 6) {
      s.kind = RT_RUNS, s.count = 1 + below(4);
      all.from = all.to = 1 + below(4096);
      for (uint64_t i = 0; i < s.count; i++) {
        const uint64_t length = 1 + below(all.from);
        runs[3 * i] = below(all.to - length + 1), runs[3 * i + 1] = below(all.from - length + 1);
        runs[3 * i + 2] = length;
      }
    } else {
      s.kind = RT_FILL, s.count = all.to = 1 + below(4096), all.from = 0;
      for (int i = 0; i < 8; i++) s.value[i] = (unsigned char)next();
    }
    /* Buffers begin at lines of the cache. */
    const size_t from_bytes = (all.from * size[0] + 63) / 64 * 64;
    const size_t to_bytes = (all.to * size[1] + 63) / 64 * 64;
    unsigned char *from = end - from_bytes;
    for (size_t i = 0; i < from_bytes; i += 8) {
      const uint64_t word = next();
      memcpy(from + i, &word, 8);
    }
    const int is_f16 = (int)below(2);
    const rt_moved source = {size[0], is_f16 && size[0] == 2};
    const rt_moved target = {size[1], is_f16 && size[1] == 2};
    rt_move moves[2];
    other_move_ready(&moves[0], &s, source, target);
    is_usual = 1;
    rt_move_ready(&moves[1], &s, source, target);
    is_usual = 0;
    for (int build = 0; build < 2; build++) {
      unsigned char *to = to_end[build] - to_bytes;
      memset(to, 0x5a, to_bytes);
      is_usual = build;
      (build ? rt_move_run : other_move_run)(&moves[build], from, to, 0);
      is_usual = 0;
    }
    for (size_t i = 0; i < to_bytes; i++) {
      if (to_end[0][i - to_bytes] == to_end[1][i - to_bytes]) continue;
      printf("wrong byte %zu of move %d, of elements of %zu bytes\n", i, n, size[1]);
      return 0;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((double)(now.tv_sec - began.tv_sec) + 1e-9 * (double)(now.tv_nsec - began.tv_nsec) > ENOUGH)
      break;
  }
  printf("right\n");
  return 0;
}
