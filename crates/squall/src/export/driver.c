/* ---- the same in every export: checks, times and calls the kernels of the table above ---- */

static uint64_t state = 0x9E3779B97F4A7C15u;

static float uniform(void) { /* splitmix64, in [-1, 1) */
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return (float)(int32_t)(z >> 40 << 8) * 0x1p-31f;
}

static void *memory(size_t bytes) {
  void *p = NULL;
  if (posix_memalign(&p, 64, (bytes + 63) / 64 * 64 + 64) != 0) {
    fprintf(stderr, "error: no memory for %zu bytes\n", bytes);
    exit(1);
  }
  return p;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct call {
  const void *data[64];
  const void *weights[64];
  void *prepared, *workspace;
  void *outputs[1];
};

/* Sorts the inputs into data and weights and packs the weights. */
static int prepare(const struct kernel *k, const struct entry *e, float *const *inputs, struct call *c) {
  int d = 0, w = 0;
  for (int i = 0; i < k->inputs; i++) {
    if (k->input[i].weight) c->weights[w++] = inputs[i];
    else c->data[d++] = inputs[i];
  }
  c->prepared = memory(e->prepared_bytes);
  c->workspace = memory(e->workspace_bytes);
  c->outputs[0] = memory(k->elements * sizeof(float));
  for (size_t i = 0; i < k->elements; i++) ((float *)c->outputs[0])[i] = NAN;
  return e->prepare ? e->prepare(c->weights, c->prepared) : 0;
}

static int run(const struct entry *e, const struct call *c) { return e->run(c->data, c->outputs, c->prepared, c->workspace); }

static void release(struct call *c) {
  free(c->prepared);
  free(c->workspace);
  free(c->outputs[0]);
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Seconds of one call: the median of 15 windows of at least 2 ms. */
static double seconds(const struct entry *e, const struct call *c) {
  enum { WINDOWS = 15 };
  double sample[WINDOWS], one;
  long calls = 1;
  for (;;) {
    double t = now();
    for (long i = 0; i < calls; i++) run(e, c);
    one = now() - t;
    if (one > 1e-3 || calls > 1L << 26) break;
    calls *= 2;
  }
  calls = (long)(2e-3 / (one / (double)calls)) + 1;
  for (int w = 0; w < WINDOWS; w++) {
    double t = now();
    for (long i = 0; i < calls; i++) run(e, c);
    sample[w] = (now() - t) / (double)calls;
  }
  qsort(sample, WINDOWS, sizeof *sample, ascending);
  return sample[WINDOWS / 2];
}

static int check(const struct kernel *k, int timed) {
  float *inputs[64];
  struct call ours, plain;
  for (int i = 0; i < k->inputs; i++) {
    inputs[i] = memory(k->input[i].elements * sizeof(float));
    for (size_t j = 0; j < k->input[i].elements; j++) inputs[i][j] = uniform();
  }
  int code = prepare(k, &k->ours, inputs, &ours);
  if (!code) code = run(&k->ours, &ours);
  if (!code) code = prepare(k, &k->plain, inputs, &plain);
  if (!code) code = run(&k->plain, &plain);
  if (code) {
    printf("%-40s FAILED: code %d\n", k->name, code);
    return 0;
  }
  const float *got = ours.outputs[0], *want = plain.outputs[0];
  double largest = 0, worst = 0;
  int unequal = 0;
  for (size_t i = 0; i < k->elements; i++) {
    if (isnan(want[i]) || isnan(got[i])) {
      unequal |= !isnan(want[i]) || !isnan(got[i]);
      continue;
    }
    if (got[i] == want[i]) {
      if (isfinite(want[i]) && fabs(want[i]) > largest) largest = fabs(want[i]);
      continue;
    }
    double d = fabs((double)got[i] - (double)want[i]);
    if (d > worst || isnan(d)) worst = isnan(d) ? INFINITY : d;
    if (isfinite(want[i]) && fabs(want[i]) > largest) largest = fabs(want[i]);
  }
  double error = worst / (largest > 0 ? largest : 1);
  int good = !unequal && error <= k->tolerance;
  printf("%-40s %s  error %.1e", k->name, good ? "right" : "WRONG", unequal ? INFINITY : error);
  if (good && timed) {
    double s = seconds(&k->ours, &ours);
    printf("  %10.2f us", s * 1e6);
    if (k->flop > 0) printf("  %8.2f GFLOP/s", k->flop / s * 1e-9);
  }
  printf("\n");
  release(&ours);
  release(&plain);
  for (int i = 0; i < k->inputs; i++) free(inputs[i]);
  return good;
}

/* driver --call SYMBOL OUTPUT INPUT..: one call on files of raw float32, weights among the inputs. */
static int call(int argc, char **argv) {
  for (size_t n = 0; n < sizeof kernels / sizeof *kernels; n++) {
    const struct kernel *k = &kernels[n];
    if (argc < 4 || strcmp(k->symbol, argv[2]) != 0) continue;
    if (argc != 4 + k->inputs) {
      fprintf(stderr, "error: %s takes %d inputs\n", k->symbol, k->inputs);
      return 2;
    }
    float *inputs[64];
    struct call c;
    for (int i = 0; i < k->inputs; i++) {
      size_t want = k->input[i].elements;
      inputs[i] = memory(want * sizeof(float));
      FILE *f = fopen(argv[4 + i], "rb");
      if (!f || fread(inputs[i], sizeof(float), want, f) != want || fgetc(f) != EOF) {
        fprintf(stderr, "error: %s does not hold %zu numbers\n", argv[4 + i], want);
        return 1;
      }
      fclose(f);
    }
    int code = prepare(k, &k->ours, inputs, &c);
    if (!code) code = run(&k->ours, &c);
    if (code) {
      fprintf(stderr, "error: %s returned %d\n", k->symbol, code);
      return 1;
    }
    FILE *f = fopen(argv[3], "wb");
    if (!f || fwrite(c.outputs[0], sizeof(float), k->elements, f) != k->elements || fclose(f) != 0) {
      fprintf(stderr, "error: cannot write %s\n", argv[3]);
      return 1;
    }
    return 0;
  }
  fprintf(stderr, "error: no kernel %s\n", argc > 2 ? argv[2] : "named");
  return 2;
}

int main(int argc, char **argv) {
  int timed = 1, good = 1, seen = 0;
  const char *only = "";
  if (argc > 1 && strcmp(argv[1], "--call") == 0) return call(argc, argv);
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--check") == 0) timed = 0;
    else if (argv[i][0] != '-') only = argv[i];
    else {
      fprintf(stderr, "usage: %s [--check] [PART OF A NAME]\n  checks every kernel against plain loops in double precision and times it\n", argv[0]);
      return 2;
    }
  }
  for (size_t n = 0; n < sizeof kernels / sizeof *kernels; n++) {
    if (strstr(kernels[n].name, only) || strstr(kernels[n].symbol, only)) {
      good &= check(&kernels[n], timed);
      seen++;
      fflush(stdout);
    }
  }
  if (!seen) fprintf(stderr, "error: no kernel matches `%s`\n", only);
  return good && seen ? 0 : 1;
}
