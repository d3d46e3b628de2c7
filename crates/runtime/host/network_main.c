/* Runs a network from one region of memory. Made by Squall; `kernels.c` beside it includes the
 * library with SQUALL_NETWORK: rt_symbols is the table of its kernels, THREADS how many it may use.
 *
 *   network SECONDS     in the folder of plan.txt, its constants and input.bin; writes output.bin
 *
 * SECONDS 0 runs once. Prints "inferences COUNT BEST MEDIAN" and "step NUMBER BEST" lines, times in
 * nanoseconds. */
#include "kernels.c"
#include <signal.h>

static rt_host host;
static rt_network network;

static int fail(const char *what) {
  fprintf(stderr, "error: %s\n", what);
  return 1;
}

/* Says at which step a kernel died. */
static void died(int sig) {
  uint32_t n = network.current;
  const char *name = n < network.plan.step_count ? network.plan.steps[n].name : "the preparation";
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

/* What goes in and comes out. */
static void *input, *output, *given, *first;
static size_t input_bytes, output_bytes;

static int infer(uint64_t *best) {
  memcpy(input, given, input_bytes);
  if (!rt_network_run(&network, best)) return 0;
  memcpy(output, rt_network_buffer(&network, RT_OUTPUT, 0, &output_bytes), output_bytes);
  return 1;
}

static int run_once(void) {
  FILE *f = fopen("input.bin", "rb");
  if (!f || fread(given, 1, input_bytes, f) != input_bytes) return !fail("input.bin");
  fclose(f);
  if (!infer(NULL)) return !fail(host.error.text);
  f = fopen("output.bin", "wb");
  if (!f || fwrite(output, 1, output_bytes, f) != output_bytes || fclose(f) != 0)
    return !fail("output.bin cannot be written");
  memcpy(first, output, output_bytes);
  return 1;
}

/* Runs for so many seconds, and prints times. */
static int run_timed(double seconds) {
  size_t count = 0, room = 1024, steps = network.plan.step_count;
  uint64_t *sample = malloc(room * sizeof *sample), *best = malloc((steps + 1) * sizeof *best);
  if (!sample || !best) return fail("there is not enough memory");
  for (size_t i = 0; i < steps; i++) best[i] = UINT64_MAX;
  if (!infer(NULL)) return fail(host.error.text); /* warm */
  const double end = rt_now(&host) + seconds * 1e9;
  for (size_t round = 0; round < 2 || rt_now(&host) < end; round++) {
    /* Every fourth inference is timed step by step, and as a whole not counted. */
    double t = rt_now(&host);
    if (!infer(round % 4 == 1 ? best : NULL)) return fail(host.error.text);
    t = rt_now(&host) - t;
    if (round % 4 == 1) continue;
    if (count == room) {
      uint64_t *more = realloc(sample, 2 * room * sizeof *sample);
      if (!more) return fail("there is not enough memory");
      sample = more;
      room *= 2;
    }
    sample[count++] = (uint64_t)t;
  }
  if (memcmp(first, output, output_bytes) != 0)
    return fail("the same input gave another output: please report this, it is a fault of "
                "Squall's");
  qsort(sample, count, sizeof *sample, ascending);
  printf("inferences %zu %llu %llu\n", count, (unsigned long long)sample[0],
         (unsigned long long)sample[count / 2]);
  for (size_t i = 0; i < steps; i++)
    printf("step %zu %llu\n", i, (unsigned long long)best[i]);
  return 0;
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 0;
  rt_plan plan;
  rt_host_open(&host);
  host.symbols = rt_symbols;
  host.symbol_count = sizeof rt_symbols / sizeof *rt_symbols;
  network.current = RT_NONE;
  signal(SIGSEGV, died), signal(SIGBUS, died), signal(SIGILL, died), signal(SIGFPE, died);
  if (!rt_plan_open("plan.txt", &plan, &host.error)) return fail(host.error.text);
  if (!rt_network_open(&network, &host, &plan, THREADS)) return fail(host.error.text);
  input = rt_network_buffer(&network, RT_DATA, 0, &input_bytes);
  if (!input || !rt_network_buffer(&network, RT_OUTPUT, 0, &output_bytes))
    return fail("the plan has no input or no output");
  given = rt_large_memory(input_bytes);
  output = rt_large_memory(output_bytes);
  first = rt_large_memory(output_bytes);
  if (!given || !output || !first) return fail("there is not enough memory");
  if (!run_once()) return 1;
  return seconds > 0 ? run_timed(seconds) : 0;
}
