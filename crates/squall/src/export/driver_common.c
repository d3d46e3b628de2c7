/* ---- the same in every export: checks and times the kernels of the table above ---- */

static void *memory(size_t bytes) {
  void *p = NULL;
  if (posix_memalign(&p, 64, (bytes + 63) / 64 * 64 + 64) != 0) {
    fprintf(stderr, "error: no memory for %zu bytes\n", bytes);
    exit(1);
  }
  return p;
}

static size_t bytes_of(const tensor *t) { return t->count * size_of(t->type); }

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The largest difference over the largest value, beside the last place of formats of 16 bits; infinite where one is a number and the other is not. */
static double difference(const unsigned char *got, const unsigned char *want, char type, size_t count) {
  double largest = 0, worst = 0;
  for (size_t i = 0; i < count; i++) {
    double w = element(want, type, i), d = apart(got, want, type, i), place = last_place(type);
    if (place > 0 && isfinite(w)) d = d > place * fabs(w) ? d - place * fabs(w) : isnan(d) ? d : 0;
    if (isfinite(w) && fabs(w) > largest) largest = fabs(w);
    if (same(element(got, type, i), w)) continue;
    if (isnan(d)) return INFINITY;
    if (d > worst) worst = d;
  }
  return worst / (largest > 0 ? largest : 1);
}

/* What rounding explains in one output excuses no wrong count in another. */
static double tolerance_of(const struct kernel *k, int output) {
  int whole = 0;
  for (int o = 0; o < k->outputs; o++) whole += is_whole(k->output[o].type);
  return is_whole(k->output[output].type) && whole < k->outputs ? 0 : k->tolerance;
}

static int check(const struct kernel *k, int timed);

/* The command line; --check leaves the times out. */
static int check_all(int argc, char **argv) {
  int timed = 1, right = 1, seen = 0;
  const char *only = "";
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--check") == 0) timed = 0;
    else if (argv[i][0] != '-') only = argv[i];
    else {
      fprintf(stderr, "usage: %s [--check] [PART OF A NAME]\n  checks every kernel against its reference and times it\n", argv[0]);
      return 2;
    }
  }
  for (size_t n = 0; n < sizeof kernels / sizeof *kernels; n++) {
    if (strstr(kernels[n].name, only) || strstr(kernels[n].symbol, only)) {
      right &= check(&kernels[n], timed);
      seen++;
      fflush(stdout);
    }
  }
  if (!seen) fprintf(stderr, "error: no kernel matches `%s`\n", only);
  return right && seen ? 0 : 1;
}

