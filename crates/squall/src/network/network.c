/* ---- the same for every network: reads the plan, prepares weights, runs and times ----
 *
 *   network SECONDS     in the folder of plan.bin, constants.bin and input.bin; writes output.bin
 *
 * SECONDS 0 runs once.  Prints "inferences COUNT BEST MEDIAN" and "step NUMBER BEST" lines, times
 * in nanoseconds.  The plan's words are written by network/files.rs, in the order read here. */

#define STEP_KERNEL 0
#define STEP_COPY 1
#define STEP_RUNS 2
#define STEP_FILL 3

struct axis {
  size_t extent, to;
  ptrdiff_t from;
};

struct step {
  uint64_t kind;
  const struct kernel *kernel;
  const void *data[64], *weights[64];
  void *outputs[1], *prepared;
  const float *from; /* moves */
  float *to;
  size_t rank, count; /* axes; runs, or elements of a fill */
  struct axis axis[32];
  const uint64_t *runs;
  float value;
};

static uint64_t *words;
static size_t word_count, word_at;
static volatile size_t current;

static void fail(const char *what) {
  fprintf(stderr, "error: %s\n", what);
  exit(1);
}

static uint64_t word(void) {
  if (word_at >= word_count) fail("plan.bin is cut");
  return words[word_at++];
}

/* Says at which step a kernel died. */
static void died(int sig) {
  const char *name = current < step_count ? step_names[current] : "the preparation";
  static const char at[] = "error: crashed at ";
  if (write(2, at, sizeof at - 1) < 0 || write(2, name, strlen(name)) < 0 || write(2, "\n", 1) < 0) _exit(2);
  signal(sig, SIG_DFL);
  raise(sig);
}

/* Large pages where the system has them: activations and weights are walked from end to end. */
static void *memory(size_t bytes) {
  void *p = NULL;
  size_t big = (size_t)2 << 20, align = bytes >= big ? big : 64;
  bytes = (bytes + align) / align * align;
  if (posix_memalign(&p, align, bytes) != 0) fail("there is not enough memory");
#ifdef MADV_HUGEPAGE
  if (align == big) madvise(p, bytes, MADV_HUGEPAGE);
#endif
  return p;
}

static void *file(const char *name, size_t bytes) {
  void *p = memory(bytes);
  FILE *f = fopen(name, "rb");
  if (!f || fread(p, 1, bytes, f) != bytes) fail(name);
  fclose(f);
  return p;
}

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The two innermost axes where the source is contiguous along one and the target along the other:
 * in squares, so that each line of the cache is used whole. */
static void turn(const float *from, float *to, struct axis a, struct axis b) {
  enum { N = 8 };
  size_t i = 0;
  for (; i + N <= a.extent; i += N) {
    size_t k = 0;
    for (; k + N <= b.extent; k += N) {
      float square[N][N];
      for (size_t y = 0; y < N; y++) memcpy(square[y], from + (ptrdiff_t)(k + y) * b.from + (ptrdiff_t)i, sizeof square[y]);
      for (size_t x = 0; x < N; x++) {
        float *row = to + (i + x) * a.to + k;
        for (size_t y = 0; y < N; y++) row[y] = square[y][x];
      }
    }
    for (; k < b.extent; k++)
      for (size_t x = 0; x < N; x++) to[(i + x) * a.to + k] = from[(ptrdiff_t)k * b.from + (ptrdiff_t)(i + x)];
  }
  for (; i < a.extent; i++)
    for (size_t k = 0; k < b.extent; k++) to[i * a.to + k] = from[(ptrdiff_t)k * b.from + (ptrdiff_t)i];
}

/* One instance of the outer axes of a copy: all of its last two. */
static void piece(const struct step *s, size_t index) {
  const float *from = s->from;
  float *to = s->to;
  for (size_t a = s->rank - 2; a-- > 0;) {
    size_t place = index % s->axis[a].extent;
    index /= s->axis[a].extent;
    to += place * s->axis[a].to;
    from += (ptrdiff_t)place * s->axis[a].from;
  }
  struct axis rows = s->axis[s->rank - 2], last = s->axis[s->rank - 1];
  if (last.to == 1 && last.from != 1 && rows.from == 1) {
    turn(from, to, rows, last);
    return;
  }
  for (size_t r = 0; r < rows.extent; r++, to += rows.to, from += rows.from) {
    if (last.to == 1 && last.from == 1) memcpy(to, from, last.extent * sizeof *to);
    else
      for (size_t i = 0; i < last.extent; i++) to[i * last.to] = from[(ptrdiff_t)i * last.from];
  }
}

static void copy(const struct step *s) {
  size_t instances = 1, inner = s->axis[s->rank - 2].extent * s->axis[s->rank - 1].extent;
  for (size_t a = 0; a + 2 < s->rank; a++) instances *= s->axis[a].extent;
#pragma omp parallel for schedule(static) num_threads(THREADS) if (THREADS > 1 && instances > 1 && instances * inner > 32768)
  for (size_t i = 0; i < instances; i++) piece(s, i);
  (void)inner;
}

/* Axes of a source that is contiguous along one go next to the innermost, for `turn`. */
static void arrange(struct step *s) {
  if (s->rank < 3 || s->axis[s->rank - 1].from == 1) return;
  for (size_t a = 0; a + 2 < s->rank; a++) {
    if (s->axis[a].from != 1) continue;
    struct axis swap = s->axis[a];
    s->axis[a] = s->axis[s->rank - 2];
    s->axis[s->rank - 2] = swap;
    return;
  }
}

static int perform(const struct step *s, void *workspace) {
  switch (s->kind) {
  case STEP_KERNEL: return s->kernel->run(s->data, s->outputs, s->prepared, workspace);
  case STEP_COPY: copy(s); return 0;
  case STEP_RUNS:
    for (size_t i = 0; i < s->count; i++) memcpy(s->to + s->runs[3 * i], s->from + s->runs[3 * i + 1], s->runs[3 * i + 2] * sizeof(float));
    return 0;
  default:
    for (size_t i = 0; i < s->count; i++) s->to[i] = s->value;
    return 0;
  }
}

static struct step *steps;
static unsigned char *arena;
static size_t workspace_at, input_at, input_bytes, output_at, output_bytes;

static void infer(const void *input, void *output, uint64_t *best) {
  memcpy(arena + input_at, input, input_bytes);
  uint64_t t = best ? now() : 0;
  for (size_t i = 0; i < step_count; i++) {
    current = i;
    if (perform(&steps[i], arena + workspace_at) != 0) {
      fprintf(stderr, "error: %s did not succeed\n", step_names[i]);
      exit(1);
    }
    if (best) {
      uint64_t end = now();
      if (end - t < best[i]) best[i] = end - t;
      t = end;
    }
  }
  memcpy(output, arena + output_at, output_bytes);
}

/* Reads the plan; constants that only `prepare` reads are let go. */
static void load(void) {
  FILE *f = fopen("plan.bin", "rb");
  if (!f || fseek(f, 0, SEEK_END) != 0) fail("there is no plan.bin");
  word_count = (size_t)ftell(f) / sizeof *words;
  rewind(f);
  words = memory(word_count * sizeof *words);
  if (fread(words, sizeof *words, word_count, f) != word_count) fail("plan.bin cannot be read");
  fclose(f);
  size_t arena_bytes = word();
  workspace_at = word(), input_at = word(), input_bytes = word(), output_at = word(), output_bytes = word();
  arena = memory(arena_bytes);
  /* Not a number: what nobody wrote shows in the output. */
  memset(arena, 0xff, arena_bytes);
  size_t constants = word();
  float **constant = memory(constants * sizeof *constant);
  unsigned char *kept = memory(constants);
  FILE *c = fopen("constants.bin", "rb");
  if (!c) fail("there is no constants.bin");
  for (size_t i = 0; i < constants; i++) {
    size_t bytes = word() * sizeof(float);
    kept[i] = (unsigned char)word();
    constant[i] = memory(bytes);
    if (fread(constant[i], 1, bytes, c) != bytes) fail("constants.bin is cut");
  }
  fclose(c);
  if (word() != step_count) fail("plan.bin is of another network");
  steps = memory(step_count * sizeof *steps);
  memset(steps, 0, step_count * sizeof *steps);
  size_t prepared_bytes = 0;
  const size_t start = word_at;
  for (int pass = 0; pass < 2; pass++) {
    /* First the sizes of prepared weights, which lie in one region; then everything. */
    unsigned char *prepared = pass ? memory(prepared_bytes) : NULL;
    word_at = start;
    for (size_t i = 0; i < step_count; i++) {
      struct step *s = &steps[i];
#define SOURCE(is_constant, value) ((is_constant) ? (const void *)constant[value] : (const void *)(arena + (value)))
      s->kind = word();
      if (s->kind == STEP_KERNEL) {
        s->kernel = &kernels[word()];
        size_t data = word();
        for (size_t d = 0; d < data; d++) {
          uint64_t is_constant = word(), value = word();
          s->data[d] = SOURCE(is_constant, value);
        }
        size_t weights = word();
        for (size_t w = 0; w < weights; w++) s->weights[w] = constant[word()];
        s->outputs[0] = arena + word();
        if (!pass) prepared_bytes += (s->kernel->prepared_bytes + 63) / 64 * 64;
        else if (s->kernel->prepare) {
          s->prepared = prepared;
          prepared += (s->kernel->prepared_bytes + 63) / 64 * 64;
          if (s->kernel->prepare(s->weights, s->prepared) != 0) fail("weights cannot be prepared");
        }
        continue;
      }
      if (s->kind != STEP_FILL) {
        uint64_t is_constant = word(), value = word();
        s->from = SOURCE(is_constant, value);
      }
      if (s->kind == STEP_COPY) s->from += word();
      s->to = (float *)(arena + word());
      if (s->kind == STEP_COPY) {
        s->rank = word();
        if (s->rank > 32) fail("plan.bin has a copy of too many axes");
        for (size_t a = 0; a < s->rank; a++) {
          s->axis[a].extent = word(), s->axis[a].to = word();
          s->axis[a].from = (ptrdiff_t)(int64_t)word();
        }
        /* A copy has two axes at least: rows of one element, or one row. */
        for (; s->rank < 2; s->rank++) {
          memmove(s->axis + 1, s->axis, s->rank * sizeof *s->axis);
          s->axis[0] = (struct axis){1, 1, 1};
        }
        arrange(s);
      } else {
        s->count = word();
        if (s->kind == STEP_RUNS) {
          s->runs = words + word_at;
          word_at += 3 * s->count;
        } else {
          uint32_t bits = (uint32_t)word();
          memcpy(&s->value, &bits, sizeof bits);
        }
      }
    }
  }
  for (size_t i = 0; i < constants; i++)
    if (!kept[i]) free(constant[i]);
}

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 0;
  signal(SIGSEGV, died), signal(SIGBUS, died), signal(SIGILL, died), signal(SIGFPE, died);
  current = step_count;
  load();
  void *input = file("input.bin", input_bytes), *first = memory(output_bytes), *output = memory(output_bytes);
  infer(input, first, NULL);
  FILE *f = fopen("output.bin", "wb");
  if (!f || fwrite(first, 1, output_bytes, f) != output_bytes || fclose(f) != 0) fail("output.bin cannot be written");
  if (seconds <= 0) return 0;
  infer(input, output, NULL); /* warm */
  size_t count = 0, room = 1024;
  uint64_t *sample = malloc(room * sizeof *sample), *best = malloc((step_count + 1) * sizeof *best);
  if (!sample || !best) fail("there is not enough memory");
  for (size_t i = 0; i < step_count; i++) best[i] = UINT64_MAX;
  const uint64_t end = now() + (uint64_t)(seconds * 1e9);
  for (size_t round = 0; round < 2 || now() < end; round++) {
    /* Every fourth inference is timed step by step, and as a whole not counted. */
    if (round % 4 == 1) {
      infer(input, output, best);
      continue;
    }
    uint64_t t = now();
    infer(input, output, NULL);
    t = now() - t;
    if (count == room) {
      room *= 2;
      sample = realloc(sample, room * sizeof *sample);
      if (!sample) fail("there is not enough memory");
    }
    sample[count++] = t;
  }
  if (memcmp(first, output, output_bytes) != 0) fail("the same input gave another output: please report this, it is a fault of Squall's");
  qsort(sample, count, sizeof *sample, ascending);
  printf("inferences %zu %llu %llu\n", count, (unsigned long long)sample[0], (unsigned long long)sample[count / 2]);
  for (size_t i = 0; i < step_count; i++) printf("step %zu %llu\n", i, (unsigned long long)best[i]);
  return 0;
}
