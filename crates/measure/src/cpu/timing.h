/* How kernels are timed: alone, beside a pacemaker, and two by two. A part of runner.c. */

static unsigned char *flush_memory;

static void flush_caches(size_t bytes) {
  static size_t have;
  if (bytes > have) {
    unsigned char *m = realloc(flush_memory, bytes);
    if (!m) return;
    flush_memory = m;
    memset(m, 1, bytes); /* pages of their own */
    have = bytes;
  }
  volatile unsigned char sum = 0;
  for (size_t i = 0; i < bytes; i += 64) sum += flush_memory[i];
  /* What the layer before has just written is near. */
  for (int d = 0; d < data_count; d++)
    for (size_t i = 0; i < data[1][d].size; i += 64) sum += data[1][d].at[i];
}

/* A window after which nothing is left of what the last one brought into the caches. */
static double cold_window(int which, long calls, size_t flush) {
  if (flush && kernels[which].gpu && !gpu_flush_caches(flush)) return -1;
  if (flush && !kernels[which].gpu) flush_caches(flush);
  return window(which, 1, calls);
}

/* ---- the pacemaker ----
 *
 * A shared machine is slow for moments at a time: what runs on the other thread of the core, or in the
 * caches, is somebody else's. The pacemaker is a kernel of the same task that is timed right before and
 * after each other kernel, so that the caller can tell a slow kernel from a slow moment. It stays loaded
 * as the second kernel, and works on the first input set: what it writes is no right answer for the second,
 * on which the others are timed. */

static int pace(const char *library, const char *symbol, size_t prepared_bytes, size_t workspace_bytes, double tolerance, size_t flush) {
  kernel *k = &kernels[1];
  if (!load(1, library, symbol, prepared_bytes, workspace_bytes) || !examine(1, tolerance)) return 0;
  if (flush) k->calls = 1;
  say("paced %.4f", k->time);
  pace_ready = 1;
  return 1;
}

static double pace_window(size_t flush) {
  if (flush) flush_caches(flush);
  /* What the other kernel drove out of the caches comes back; among many calls it is too little to matter. */
  else if (kernels[1].calls <= 4 && window(1, 0, 1) < 0) return -1;
  return window(1, 0, kernels[1].calls);
}

static int run(const char *library, const char *symbol, size_t prepared_bytes, size_t workspace_bytes, double tolerance, double limit, size_t flush) {
  kernel *k = &kernels[0];
  if (!load(0, library, symbol, prepared_bytes, workspace_bytes) || !examine(0, tolerance)) return 0;
  long calls = flush ? 1 : k->calls;
  double one = k->time * (double)calls;
  int windows = (int)(4e7 / (one + 1));
  windows = windows < 3 ? 3 : windows > WINDOWS ? WINDOWS : windows;
  if (k->time > 1e9 || (limit > 0 && k->time > limit)) windows = 2;
  double samples[WINDOWS], pace = 0;
  /* Where the moment changed meanwhile, it is unknown which sample belongs to which. */
  for (int turn = 0; turn < 3; turn++) {
    double before = pace_ready ? pace_window(flush) : 0;
    /* What the pacemaker drove out of the caches comes back. */
    if (before < 0 || (pace_ready && !flush && window(0, 1, 1) < 0)) return 0;
    for (int i = 0; i < windows; i++) {
      samples[i] = cold_window(0, calls, flush);
      if (samples[i] < 0) return 0;
    }
    if (turn == 0 && !right(0, 1, tolerance)) return 0;
    if (!pace_ready) break;
    double after = pace_window(flush);
    if (after < 0) return 0;
    pace = sqrt(before * after);
    if (before < 1.15 * after && after < 1.15 * before) break;
  }
  say("measured %.6g %ld %d", k->error, calls, windows);
  for (int i = 0; i < windows; i++) say(" %.4f", samples[i]);
  if (pace_ready) say(" %.4f", pace);
  if (k->gpu) say_gpu();
  unload(0);
  return 1;
}

static size_t duel_flush;

static int duel(double tolerance, size_t flush, const char *const library[2], const char *const symbol[2], const size_t prepared_bytes[2], const size_t workspace_bytes[2]) {
  for (int i = 0; i < 2; i++) {
    int good = load(i, library[i], symbol[i], prepared_bytes[i], workspace_bytes[i]) && examine(i, tolerance) && window(i, 1, 1) >= 0 && right(i, 1, tolerance);
    if (!good) {
      char text[sizeof fail_text];
      memcpy(text, fail_text, sizeof text);
      return fail(fail_where, "%c %s", i == 0 ? 'a' : 'b', text);
    }
  }
  /* As many calls for both, by the slower: the median of longer windows is larger, because more of
   * them are disturbed, and near the edge of two and three calls that alone would name a winner. */
  double slower = kernels[0].time > kernels[1].time ? kernels[0].time : kernels[1].time;
  duel_flush = flush;
  kernels[0].calls = kernels[1].calls = flush ? 1 : calls_of_a_window(slower);
  say("duel %.6g %.6g %ld %ld %.4f %.4f", kernels[0].error, kernels[1].error, kernels[0].calls, kernels[1].calls, kernels[0].time, kernels[1].time);
  duel_ready = 1;
  return 1;
}

/* Which of a pair comes first is left to chance. In a fixed order, a disturbance that returns every
 * few windows, such as another process's time slices, always meets the same kernel. */
static int pairs(int count) {
  static uint64_t chance;
  if (!chance) chance = (uint64_t)now() ^ (uint64_t)getpid() << 32;
  say("pairs");
  for (int i = 0; i < count && i < 100; i++) {
    double t[2];
    int first = (int)(random_bits(&chance) & 1);
    for (int j = 0; j < 2; j++) {
      int which = first ^ j;
      t[which] = cold_window(which, kernels[which].calls, duel_flush);
      if (t[which] < 0) return 0;
    }
    say(" %.4f %.4f", t[0], t[1]);
  }
  return 1;
}

