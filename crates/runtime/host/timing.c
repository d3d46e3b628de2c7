/* Times kernels of a session: alone, beside a pacemaker, and two by two.
 *
 * A shared machine is slow for moments at a time: another program runs on the other thread of
 * the core, or fills the caches. The pacemaker is a kernel of the same task that is timed right
 * before and after each other kernel, so that the caller can tell a slow kernel from a slow
 * moment. It stays loaded as the second kernel and works on the first input set, so that its
 * outputs are no right answer for the second set, on which the other kernels are timed. */
#define _GNU_SOURCE
#include "session.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

static double window(rt_session *s, int which, int set, long calls) {
  return s->kernels[which].on->window(s, which, set, calls);
}

/* A window after which nothing is left of what the last one brought into the caches. */
static double cold_window(rt_session *s, int which, long calls, size_t flush) {
  if (flush && !s->kernels[which].on->flush(s, flush)) return -1;
  return window(s, which, 1, calls);
}

int rt_pace(rt_session *s, rt_plan *plan, double tolerance, size_t flush) {
  s->duel_ready = s->pace_ready = 0;
  if (!rt_load_kernel(s, 1, plan) || !rt_examine(s, 1, tolerance, 1)) return 0;
  if (flush) s->kernels[1].calls = 1;
  s->pace_ready = 1;
  return 1;
}

static double pace_window(rt_session *s, size_t flush) {
  rt_contender *k = &s->kernels[1];
  if (flush && !k->on->flush(s, flush)) return -1;
  /* What the other kernel drove out of the caches comes back; among many calls it is too little
   * to matter. */
  if (!flush && k->calls <= 4 && window(s, 1, 0, 1) < 0) return -1;
  return window(s, 1, 0, k->calls);
}

int rt_measure(rt_session *s, rt_plan *plan, double tolerance, double limit, size_t flush,
               rt_measured *m) {
  rt_contender *k = &s->kernels[0];
  s->duel_ready = 0;
  if (!s->pace_ready) rt_unload_kernel(s, 1);
  const int is_timed = limit != RT_UNTIMED;
  if (!rt_load_kernel(s, 0, plan) || !rt_examine(s, 0, tolerance, is_timed)) return 0;
  memset(m, 0, sizeof *m);
  m->calls = flush ? 1 : k->calls;
  m->paced = s->pace_ready;
  double one = k->time * (double)m->calls;
  int windows = (int)(4e7 / (one + 1));
  windows = windows < 3 ? 3 : windows > RT_WINDOWS ? RT_WINDOWS : windows;
  if (k->time > 1e9 || (limit > 0 && k->time > limit)) windows = 2;
  /* No time is asked for: the second inputs are computed once. */
  if (!is_timed) windows = 1;
  m->windows = windows;
  /* Where the moment changed meanwhile, it is unknown which sample belongs to which. */
  for (int turn = 0; turn < 3; turn++) {
    double before = m->paced ? pace_window(s, flush) : 0;
    /* What the pacemaker drove out of the caches comes back. */
    if (before < 0 || (m->paced && !flush && window(s, 0, 1, 1) < 0)) return 0;
    for (int i = 0; i < windows; i++) {
      m->samples[i] = cold_window(s, 0, m->calls, flush);
      if (m->samples[i] < 0) return 0;
    }
    if (turn == 0 && !rt_right(s, 0, 1, tolerance)) return 0;
    if (!m->paced) break;
    double after = pace_window(s, flush);
    if (after < 0) return 0;
    m->pace = sqrt(before * after);
    if (before < 1.15 * after && after < 1.15 * before) break;
  }
  m->error = k->error;
  return 1;
}

int rt_duel(rt_session *s, rt_plan plans[2], double tolerance, size_t flush, int *loser) {
  s->duel_ready = s->pace_ready = 0;
  for (*loser = 0; *loser < 2; ++*loser) {
    int i = *loser;
    if (!rt_load_kernel(s, i, &plans[i]) || !rt_examine(s, i, tolerance, 1)) return 0;
    if (window(s, i, 1, 1) < 0 || !rt_right(s, i, 1, tolerance)) return 0;
  }
  /* As many calls for both, by the slower: the median of longer windows is larger, because more of
   * them are disturbed, and near the edge of two and three calls that alone would name a winner. */
  rt_contender *k = s->kernels;
  long fewer = k[0].calls < k[1].calls ? k[0].calls : k[1].calls;
  s->duel_flush = flush;
  k[0].calls = k[1].calls = flush ? 1 : fewer;
  s->duel_ready = 1;
  return 1;
}

/* Which of a pair comes first is left to chance. In a fixed order, a disturbance that returns every
 * few windows, such as another process's time slices, always meets the same kernel. */
int rt_pair(rt_session *s, double times[2]) {
  if (!s->chance) s->chance = (uint64_t)rt_now(s->host) ^ (uint64_t)getpid() << 32;
  int first = (int)(rt_random(&s->chance) & 1);
  for (int j = 0; j < 2; j++) {
    int which = first ^ j;
    times[which] = cold_window(s, which, s->kernels[which].calls, s->duel_flush);
    if (times[which] < 0) return 0;
  }
  return 1;
}
