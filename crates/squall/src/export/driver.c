static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct call {
  const void *data[64];
  const void *weights[64];
  void *prepared, *workspace;
  void *outputs[64];
};

/* Sorts the inputs into data and weights, packs the weights, and makes room for outputs that say
 * if nothing was written to them. */
static int prepare(const struct kernel *k, const struct entry *e, void *const *inputs, struct call *c) {
  int d = 0, w = 0;
  for (int i = 0; i < k->inputs; i++) {
    if (k->input[i].weight) c->weights[w++] = inputs[i];
    else c->data[d++] = inputs[i];
  }
  c->prepared = memory(e->prepared_bytes);
  c->workspace = memory(e->workspace_bytes);
  for (int o = 0; o < k->outputs; o++) {
    c->outputs[o] = memory(bytes_of(&k->output[o]));
    memset(c->outputs[o], e == &k->ours ? 0xFF : 0xFE, bytes_of(&k->output[o])); /* what neither writes differs */
  }
  return e->prepare ? e->prepare(c->weights, c->prepared) : 0;
}

static int run(const struct entry *e, const struct call *c) { return e->run(c->data, c->outputs, c->prepared, c->workspace); }

static void release(const struct kernel *k, struct call *c) {
  free(c->prepared);
  free(c->workspace);
  for (int o = 0; o < k->outputs; o++) free(c->outputs[o]);
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
  void *inputs[64];
  struct call ours, plain;
  uint64_t seed = 1;
  for (int i = 0; i < k->inputs; i++) {
    inputs[i] = memory(bytes_of(&k->input[i].is));
    fill_elements(inputs[i], &k->input[i].is, &seed);
  }
  int code = prepare(k, &k->ours, inputs, &ours);
  if (!code) code = run(&k->ours, &ours);
  if (!code) code = prepare(k, &k->plain, inputs, &plain);
  if (!code) code = run(&k->plain, &plain);
  if (code) {
    printf("%-40s FAILED: code %d\n", k->name, code);
    return 0;
  }
  double error = 0;
  int good = 1;
  for (int o = 0; o < k->outputs; o++) {
    char type = k->output[o].type;
    double e = difference(ours.outputs[o], plain.outputs[o], type, k->output[o].count);
    good &= e <= tolerance_of(k, o);
    if (!(e <= error)) error = e;
  }
  printf("%-40s %s  error %.1e", k->name, good ? "right" : "WRONG", error);
  if (good && timed) {
    double s = seconds(&k->ours, &ours);
    printf("  %10.2f us", s * 1e6);
    if (k->flop > 0) printf("  %8.2f GFLOP/s", k->flop / s * 1e-9);
  }
  printf("\n");
  release(k, &ours);
  release(k, &plain);
  for (int i = 0; i < k->inputs; i++) free(inputs[i]);
  return good;
}

/* driver --call SYMBOL OUTPUT.. INPUT..: one call on files of raw numbers, weights among the inputs. */
static int call(int argc, char **argv) {
  for (size_t n = 0; n < sizeof kernels / sizeof *kernels; n++) {
    const struct kernel *k = &kernels[n];
    if (argc < 4 || strcmp(k->symbol, argv[2]) != 0) continue;
    if (argc != 3 + k->outputs + k->inputs) {
      fprintf(stderr, "error: %s has %d outputs and %d inputs\n", k->symbol, k->outputs, k->inputs);
      return 2;
    }
    char **outputs = argv + 3, **given = outputs + k->outputs;
    void *inputs[64];
    struct call c;
    for (int i = 0; i < k->inputs; i++) {
      size_t want = bytes_of(&k->input[i].is);
      inputs[i] = memory(want);
      FILE *f = fopen(given[i], "rb");
      if (!f || fread(inputs[i], 1, want, f) != want || fgetc(f) != EOF) {
        fprintf(stderr, "error: %s does not hold %zu numbers\n", given[i], k->input[i].is.count);
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
    for (int o = 0; o < k->outputs; o++) {
      size_t bytes = bytes_of(&k->output[o]);
      FILE *f = fopen(outputs[o], "wb");
      if (!f || fwrite(c.outputs[o], 1, bytes, f) != bytes || fclose(f) != 0) {
        fprintf(stderr, "error: cannot write %s\n", outputs[o]);
        return 1;
      }
    }
    return 0;
  }
  fprintf(stderr, "error: no kernel %s\n", argc > 2 ? argv[2] : "named");
  return 2;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--call") == 0) return call(argc, argv);
  return check_all(argc, argv);
}
