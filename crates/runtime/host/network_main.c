/* Runs a network on a CPU. Made by Squall. The table of its kernels is `kernels.c`, a unit of
 * its own, so that this one is compiled once for all networks; `moves.c` is a unit, too.
 *
 *   network SECONDS [FILE]  in the folder of plan.txt, its constants and input_0.bin ..; writes
 *                           output_0.bin ..; reads prepared weights from FILE, or keeps them there
 *   network --weights FILE  writes constants and prepared weights as an exported library maps them
 *
 * SECONDS 0 runs once. Prints "inferences COUNT BEST MEDIAN", unless it runs once, and "step
 * NUMBER BEST" lines, times in nanoseconds. */
#define SQUALL_NETWORK
#include "runtime.c"
#include <signal.h>

/* What is linked in, and how many threads it may use. */
extern const rt_symbol rt_symbols[];
extern const size_t rt_symbol_count;
extern const int rt_threads;

static rt_host host;
static rt_network network;

static int fail(const char *what) {
  return fprintf(stderr, "error: %s\n", what), 1;
}

static int fail_of(const char *what, uint32_t number) {
  return fprintf(stderr, "error: %s_%u.bin: %s\n", what, number, strerror(errno)), 1;
}

/* Says at which step a kernel died. */
static void died(int sig) {
  uint32_t n = network.current;
  const rt_plan *plan = &network.model.plan;
  const char *name = n < plan->step_count ? plan->steps[n].name : "the preparation";
  static const char at[] = "error: crashed at ";
  if (write(2, at, sizeof at - 1) < 0 || write(2, name, strlen(name)) < 0 ||
      write(2, "\n", 1) < 0)
    _exit(2);
  signal(sig, SIG_DFL);
  raise(sig);
}

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* What goes in and comes out; the outputs of the first run are kept beside. */
static void **given, **outputs, **first;

static void **memory_of(const rt_port *ports, uint32_t count) {
  void **all = calloc(count + 1u, sizeof *all);
  for (uint32_t i = 0; all && i < count; i++)
    if (!(all[i] = rt_large_memory(ports[i].bytes))) return NULL;
  return all;
}

static int infer(uint64_t *best) {
  rt_network_let_go(&network, outputs);
  return rt_network_run(&network, (const void *const *)given, outputs, best);
}

/* Runs once on the files, and prints how long each step took where that is asked for. */
static int run_once(int say) {
  const rt_model *m = &network.model;
  const uint32_t steps = m->plan.step_count;
  uint64_t *best = malloc((steps + 1u) * sizeof *best);
  if (!best) return !fail("there is not enough memory");
  for (uint32_t i = 0; i < steps; i++) best[i] = UINT64_MAX;
  char name[40];
  for (uint32_t i = 0; i < m->input_count; i++) {
    snprintf(name, sizeof name, "input_%u.bin", i);
    FILE *f = fopen(name, "rb");
    if (!f || fread(given[i], 1, m->inputs[i].bytes, f) != m->inputs[i].bytes)
      return !fail_of("input", i);
    fclose(f);
  }
  if (!infer(best)) return !fail(host.error.text);
  for (uint32_t i = 0; say && i < steps; i++)
    printf("step %u %llu\n", i, (unsigned long long)best[i]);
  free(best);
  for (uint32_t i = 0; i < m->output_count; i++) {
    size_t bytes = m->outputs[i].bytes;
    snprintf(name, sizeof name, "output_%u.bin", i);
    FILE *f = fopen(name, "wb");
    size_t more = 0;
    const void *grown = m->outputs[i].grown ? rt_grown(outputs[i], &more) : NULL;
    if (!f || fwrite(outputs[i], 1, bytes, f) != bytes ||
        (more && fwrite(grown, 1, more, f) != more) || fclose(f) != 0)
      return !fail_of("output", i);
    memcpy(first[i], outputs[i], bytes);
    /* What grew is kept. */
    if (m->outputs[i].grown) memset(outputs[i], 0, bytes);
  }
  return 1;
}

/* Runs for so many seconds, and prints times. */
static int run_timed(double seconds) {
  /* More inferences than any budget holds; what is not used of it is never touched. */
  const size_t most = (size_t)1 << 22, steps = network.model.plan.step_count;
  uint64_t *sample = malloc(most * sizeof *sample), *best = malloc((steps + 1) * sizeof *best);
  size_t count = 0;
  if (!sample || !best) return fail("there is not enough memory");
  for (size_t i = 0; i < steps; i++) best[i] = UINT64_MAX;
  if (!infer(NULL)) return fail(host.error.text); /* warm */
  const double end = rt_now(&host) + seconds * 1e9;
  for (size_t round = 0; round < 2 || (count < most && rt_now(&host) < end); round++) {
    /* Every fourth inference is timed step by step, and as a whole not counted. */
    double t = rt_now(&host);
    if (!infer(round % 4 == 1 ? best : NULL)) return fail(host.error.text);
    t = rt_now(&host) - t;
    if (!rt_network_is_same(&network, first, outputs))
      return fail("the same input gave another output: please report this, it is a fault of "
                  "Squall's");
    if (round % 4 == 1) continue;
    sample[count++] = (uint64_t)t;
  }
  qsort(sample, count, sizeof *sample, ascending);
  printf("inferences %zu %llu %llu\n", count, (unsigned long long)sample[0],
         (unsigned long long)sample[count / 2]);
  for (size_t i = 0; i < steps; i++) printf("step %zu %llu\n", i, (unsigned long long)best[i]);
  return 0;
}

int main(int argc, char **argv) {
  const int is_export = argc == 3 && strcmp(argv[1], "--weights") == 0;
  const char *packed = argc == 3 && !is_export ? argv[2] : NULL;
  double seconds = argc > 1 && !is_export ? atof(argv[1]) : 0;
  rt_plan plan;
  rt_host_open(&host);
  host.symbols = rt_symbols;
  host.symbol_count = rt_symbol_count;
  network.current = RT_NONE;
  signal(SIGSEGV, died), signal(SIGBUS, died), signal(SIGILL, died), signal(SIGFPE, died);
  if (!rt_plan_open("plan.txt", &plan, &host.error)) return fail(host.error.text);
  if (!rt_network_open(&network, &host, &plan, rt_threads, packed)) return fail(host.error.text);
  if (is_export) {
    const void *const *regions = (const void *const *)network.regions;
    return rt_weights_write(argv[2], "plan.txt", &network.model.plan, regions, &host.error)
               ? 0 : fail(host.error.text);
  }
  const rt_model *m = &network.model;
  given = memory_of(m->inputs, m->input_count);
  outputs = memory_of(m->outputs, m->output_count);
  first = memory_of(m->outputs, m->output_count);
  if (!given || !outputs || !first) return fail("there is not enough memory");
  for (uint32_t i = 0; i < m->output_count; i++) memset(outputs[i], 0, m->outputs[i].bytes);
  return !run_once(seconds <= 0) ? 1 : seconds > 0 ? run_timed(seconds) : 0;
}
