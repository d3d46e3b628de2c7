/* The program that runs a network on a GPU. Made by Squall; plan.txt beside it names its cubins.
 *
 *   network SECONDS ORDINAL          in the folder of plan.txt, its constants and input_0.bin,
 *                                    input_1.bin ..; writes output_0.bin, output_1.bin ..
 *   network --weights FILE ORDINAL   prepares weights, and writes them for an exported library
 *
 * SECONDS 0 runs once, a negative number does so without looking at the steps. Prints
 * "inferences COUNT BEST MEDIAN", device times of replayed graphs, and "host COUNT BEST MEDIAN",
 * from and to the host's memory, unless it runs once; and "step NUMBER BEST" lines, of steps
 * that are repeated alone, and "place NUMBER MEDIAN" lines, of steps between their neighbours;
 * times in nanoseconds. */
#define SQUALL_NETWORK
#define SQUALL_CUDA
#include "runtime.c"

static rt_host host;
static rt_gpu gpu;
static rt_gpu_network network;
static int fail(const char *what) {
  fprintf(stderr, "error: %s\n", what);
  return 1;
}

static int fail_of(const char *what, uint32_t number) {
  fprintf(stderr, "error: %s_%u.bin: %s\n", what, number, strerror(errno));
  return 1;
}

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static int read_inputs(void) {
  const rt_model *m = &network.model;
  char name[40];
  for (uint32_t i = 0; i < m->input_count; i++) {
    snprintf(name, sizeof name, "input_%u.bin", i);
    FILE *f = fopen(name, "rb");
    if (!f || fread(network.given[i], 1, m->inputs[i].bytes, f) != m->inputs[i].bytes)
      return !fail_of("input", i);
    fclose(f);
  }
  return 1;
}

static int write_outputs(void) {
  const rt_model *m = &network.model;
  char name[40];
  for (uint32_t i = 0; i < m->output_count; i++) {
    snprintf(name, sizeof name, "output_%u.bin", i);
    FILE *f = fopen(name, "wb");
    size_t bytes = m->outputs[i].bytes;
    if (!f || fwrite(network.results[i], 1, bytes, f) != bytes || fclose(f) != 0)
      return !fail_of("output", i);
  }
  return 1;
}

typedef struct {
  size_t count, room;
  uint64_t *all;
} samples;

static int add(samples *s, double ns) {
  if (s->count == s->room) {
    s->room = 2 * s->room + 256;
    s->all = realloc(s->all, s->room * sizeof *s->all);
    if (!s->all) return !fail("there is not enough memory");
  }
  s->all[s->count++] = (uint64_t)ns;
  return 1;
}

static void say(const char *what, samples *s, size_t each) {
  qsort(s->all, s->count, sizeof *s->all, ascending);
  printf("%s %zu %llu %llu\n", what, s->count * each, (unsigned long long)s->all[0],
         (unsigned long long)s->all[s->count / 2]);
}

/* Replays and whole inferences in turns, for so many seconds. */
static int run_timed(double seconds) {
  enum { LEAST = 3, WINDOW = 2000000 };
  samples device = {0, 0, NULL}, whole = {0, 0, NULL};
  double once = rt_gpu_network_replay(&network, 1);
  long replays = once > WINDOW / 100 ? (long)(WINDOW / once) + 1 : 100;
  const double end = rt_now(&host) + seconds * 1e9;
  for (size_t round = 0; round < LEAST || rt_now(&host) < end; round++) {
    double ns = rt_gpu_network_replay(&network, replays);
    if (ns < 0) return fail(host.error.text);
    if (!add(&device, ns)) return 1;
    for (long i = 0; i < replays; i++) {
      double t = rt_now(&host);
      if (!rt_gpu_network_run(&network)) return fail(host.error.text);
      if (!add(&whole, rt_now(&host) - t)) return 1;
    }
  }
  say("inferences", &device, (size_t)replays), say("host", &whole, 1);
  return 0;
}

static int say_steps(void) {
  const uint32_t steps = network.model.plan.step_count;
  uint64_t *best = malloc((steps + 1u) * sizeof *best);
  if (!best) return !fail("there is not enough memory");
  int fine = rt_gpu_network_steps(&network, best);
  for (uint32_t i = 0; fine && i < steps; i++)
    printf("step %u %llu\n", i, (unsigned long long)best[i]);
  free(best);
  return fine || !fail(host.error.text);
}

static int say_places(void) {
  const uint32_t steps = network.model.plan.step_count;
  uint64_t *place = malloc((steps + 1u) * sizeof *place);
  int is_known = 0;
  if (!place) return !fail("there is not enough memory");
  int fine = rt_gpu_network_places(&network, place, &is_known);
  for (uint32_t i = 0; is_known && i < steps; i++)
    printf("place %u %llu\n", i, (unsigned long long)place[i]);
  free(place);
  return fine || !fail(host.error.text);
}

int main(int argc, char **argv) {
  const int exports = argc == 4 && strcmp(argv[1], "--weights") == 0;
  const double seconds = argc > 1 ? atof(argv[1]) : 0;
  rt_plan plan;
  rt_host_open(&host);
  if (!rt_plan_open("plan.txt", &plan, &host.error) ||
      !rt_gpu_open(&host, argc > 2 ? atoi(argv[argc - 1]) : 0, &gpu) ||
      !rt_gpu_network_open(&network, &gpu, &plan))
    return fail(host.error.text);
  if (exports)
    return rt_gpu_network_weights(&network, argv[2], "plan.txt") ? 0 : fail(host.error.text);
  if (!read_inputs()) return 1;
  if (!rt_gpu_network_run(&network) || !rt_gpu_network_remember(&network))
    return fail(host.error.text);
  if (!write_outputs()) return 1;
  if (seconds > 0 && run_timed(seconds) != 0) return 1;
  printf("streams %d\noverlaps %d\n", network.is_parted ? RT_STREAMS : 1, network.is_overlapped);
  if (seconds >= 0 && !say_steps()) return 1;
  if (seconds > 0 && !say_places()) return 1;
  if (!rt_gpu_network_run(&network)) return fail(host.error.text);
  if (!rt_gpu_network_is_same(&network))
    return fail("the same input gave another output: please report this, it is a fault of "
                "Squall's");
  rt_gpu_network_close(&network);
  return 0;
}
