/* The driver of an exported folder: checks every exported kernel against its reference, and
 * times it. Made by Squall; `kernels.c` beside it includes the library: rt_symbols is the table
 * of linked functions, rt_exported the table of kernels with their plans, and SQUALL_CUDA is
 * defined where they run on a GPU. */
#include "kernels.c"

static rt_host host;
static rt_session session;

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Nanoseconds of one call: the median of 15 windows of two milliseconds at least. */
static double nanoseconds(void) {
  enum { WINDOWS = 15 };
  const rt_contender *k = &session.kernels[0];
  double sample[WINDOWS];
  long calls = 2 * k->calls < k->on->most_calls ? 2 * k->calls : k->on->most_calls;
  for (int w = 0; w < WINDOWS; w++) {
    sample[w] = k->on->window(&session, 0, 1, calls);
    if (sample[w] < 0) return -1;
  }
  qsort(sample, WINDOWS, sizeof *sample, ascending);
  return sample[WINDOWS / 2];
}

static int plan_of(const char *text, rt_plan *plan) {
  return rt_plan_read(text, strlen(text), plan, &host.error);
}

/* Makes inputs and expected outputs, and loads the kernel. */
static int begin(const rt_export *k) {
  rt_plan ours, reference;
  rt_task_result task;
  if (!plan_of(k->reference, &reference)) return 0;
  int fine = rt_set_task(&session, &reference, 1, NULL, &task);
  rt_plan_close(&reference);
  return fine && plan_of(k->plan, &ours) && rt_load_kernel(&session, 0, &ours);
}

/* Calls the kernel once on the second input set: slow kernels are examined on the first only. */
static int call_again(void) { return session.kernels[0].on->window(&session, 0, 1, 1) >= 0; }

static int check(const rt_export *k, int timed) {
  if (!begin(k) || !rt_examine(&session, 0, k->tolerance, 1) || !call_again() ||
      !rt_right(&session, 0, 1, k->tolerance)) {
    int wrong = strcmp(host.error.where, "wrong") == 0 || strcmp(host.error.where, "damage") == 0;
    printf("%-40s %s: %s\n", k->name, wrong ? "WRONG" : "FAILED", host.error.text);
    return 0;
  }
  printf("%-40s right  error %.1e", k->name, session.kernels[0].error);
  double ns = timed ? nanoseconds() : 0;
  if (ns > 0) printf("  %10.2f us", ns * 1e-3);
  if (ns > 0 && k->flop > 0) printf("  %8.2f GFLOP/s", k->flop / ns);
  printf("\n");
  return ns >= 0;
}

static int complain(const char *text, const char *what) {
  fprintf(stderr, "error: %s%s\n", text, what);
  return 1;
}

/* Writes the outputs to files of raw numbers. */
static int write_outputs(char **names) {
  for (uint32_t o = 0; o < session.output_count; o++) {
    const rt_guarded *b = &session.outputs[o].at;
    FILE *f = fopen(names[o], "wb");
    if (!f || fwrite(b->at, 1, b->size, f) != b->size || fclose(f) != 0)
      return complain("cannot write ", names[o]);
  }
  return 0;
}

/* driver --call SYMBOL OUTPUT.. INPUT..: one call on files of raw numbers, weights among the
 * inputs. */
static int call(int argc, char **argv) {
  for (size_t n = 0; n < sizeof rt_exported / sizeof *rt_exported; n++) {
    const rt_export *k = &rt_exported[n];
    rt_plan reference, ours;
    rt_task_result task;
    if (argc < 4 || strcmp(k->symbol, argv[2]) != 0) continue;
    if (!plan_of(k->reference, &reference) || !plan_of(k->plan, &ours))
      return complain(host.error.text, "");
    int outputs = 0, inputs = 0;
    reference.kernel_count = 0; /* nothing is expected of the outputs */
    for (uint32_t i = 0; i < reference.buffer_count; i++) {
      rt_buffer *b = &reference.buffers[i];
      outputs += b->role == RT_OUTPUT;
      if (b->role != RT_DATA && b->role != RT_WEIGHT) continue;
      int at = 3 + (int)ours.kernels[0].output_count + inputs++;
      b->is.file = at < argc ? argv[at] : "";
    }
    if (argc != 3 + outputs + inputs) {
      fprintf(stderr, "error: %s has %d outputs and %d inputs\n", k->symbol, outputs, inputs);
      return 2;
    }
    if (!rt_set_task(&session, &reference, 1, NULL, &task) || !rt_load_kernel(&session, 0, &ours))
      return complain(host.error.text, "");
    const rt_backend *on = session.kernels[0].on;
    if (!on->poison(&session, 0, session.poison) || on->window(&session, 0, 0, 1) < 0 ||
        !on->fetch(&session, 0))
      return complain(host.error.text, "");
    return write_outputs(argv + 3);
  }
  fprintf(stderr, "error: no kernel %s\n", argc > 2 ? argv[2] : "named");
  return 2;
}

int main(int argc, char **argv) {
  int timed = 1, right = 1, seen = 0;
  const char *only = "";
  rt_host_open(&host);
  host.symbols = rt_symbols;
  host.symbol_count = sizeof rt_symbols / sizeof *rt_symbols;
  session.host = &host;
#ifdef SQUALL_CUDA
  static rt_gpu gpu;
  if (!rt_gpu_open(&host, 0, &gpu) || !rt_gpu_attach(&session, &gpu))
    return complain(host.error.text, "");
#endif
  if (argc > 1 && strcmp(argv[1], "--call") == 0) return call(argc, argv);
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--check") == 0) timed = 0;
    else if (argv[i][0] != '-') only = argv[i];
    else {
      fprintf(stderr,
              "usage: %s [--check] [PART OF A NAME]\n"
              "  checks every kernel against its reference and times it\n",
              argv[0]);
      return 2;
    }
  }
  for (size_t n = 0; n < sizeof rt_exported / sizeof *rt_exported; n++) {
    const rt_export *k = &rt_exported[n];
    if (!strstr(k->name, only) && !strstr(k->symbol, only)) continue;
    right &= check(k, timed);
    seen++;
    fflush(stdout);
  }
  if (!seen) fprintf(stderr, "error: no kernel matches `%s`\n", only);
  return right && seen ? 0 : 1;
}
