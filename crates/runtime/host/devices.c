/* The runner's other requests about GPUs: describe one, measure its roof (peak and bandwidths),
 * compile CUDA C. Without SQUALL_CUDA each answers that the runner was built without CUDA. */
#include "devices.h"
#include <string.h>

#ifdef SQUALL_CUDA

int rt_use_gpu(rt_runner *r, int ordinal) {
  return rt_gpu_open(&r->host, ordinal, &r->gpu) && rt_gpu_attach(&r->session, &r->gpu);
}

void rt_say_clocks(rt_runner *r) {
  rt_clocks c = rt_gpu_clocks(&r->gpu);
  rt_say(r, " gpu=%d,%u,%u,%llu", r->gpu.ordinal, c.sm_mhz, c.memory_mhz, c.throttle);
}

int rt_become_compiler(rt_runner *r, const char *architecture) {
  r->compiles = 1;
  return rt_nvrtc_open(&r->host, architecture, &r->nvrtc);
}

int rt_answer_compile(rt_runner *r, const char *from, const char *to, const char *with) {
  rt_cubin made = {0};
  if (!rt_compile(&r->nvrtc, from, to, with, &made)) return 0;
  rt_say(r, "built bytes=%zu", made.bytes);
  for (int i = 0; i < made.count; i++) rt_say(r, " name=%s", made.names[i]);
  return 1;
}

/* How many devices there are; versions; limits; clocks now and at most, heat, power; the name. */
int rt_describe_gpu(rt_runner *r, int ordinal) {
  static const struct {
    const char *name;
    int which;
  } limits[] = {
      {"multiprocessors", 16},           {"threads_per_block", 1},
      {"threads_per_multiprocessor", 39}, {"shared_per_block", 97},
      {"shared_per_multiprocessor", 81}, {"registers_per_multiprocessor", 82},
      {"l2", 38},
  };
  rt_gpu *g = &r->gpu;
  int version = 0, major = 0, minor = 0, count = 0, capability[2], value;
  char name[200];
  if (!rt_gpu_open(&r->host, ordinal, g) || !rt_nvrtc_open(&r->host, "", &r->nvrtc)) return 0;
  if (!rt_gpu_good(g, g->cuDeviceGetName(name, sizeof name, g->device), "its name")) return 0;
  if (!rt_gpu_good(g, g->cuDeviceGetCount(&count), "devices")) return 0;
  if (!rt_gpu_attribute(g, 75, &capability[0]) || !rt_gpu_attribute(g, 76, &capability[1]))
    return 0;
  g->cuDriverGetVersion(&version);
  r->nvrtc.nvrtcVersion(&major, &minor);
  rt_say(r, "device count=%d driver=%d nvrtc=%d.%d capability=%d", count, version, major, minor,
         10 * capability[0] + capability[1]);
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    if (!rt_gpu_attribute(g, limits[i].which, &value)) return 0;
    rt_say(r, " %s=%d", limits[i].name, value);
  }
  rt_say_clocks(r);
  unsigned degrees = 0, milliwatts = 0;
  rt_nvml *n = &g->nvml;
  if (n->device) n->nvmlDeviceGetTemperature(n->device, 0, &degrees);
  if (n->device) n->nvmlDeviceGetPowerUsage(n->device, &milliwatts);
  rt_say(r, " most_sm_mhz=%u most_memory_mhz=%u degrees=%u watts=%u name=%s",
         rt_gpu_most_mhz(g, RT_CLOCK_SM), rt_gpu_most_mhz(g, RT_CLOCK_MEMORY), degrees,
         milliwatts / 1000, name);
  return 1;
}

int rt_measure_roof(rt_runner *r, int ordinal, const char *architecture) {
  rt_roof roof;
  if (!rt_gpu_open(&r->host, ordinal, &r->gpu)) return 0;
  if (!rt_nvrtc_open(&r->host, architecture, &r->nvrtc)) return 0;
  if (!rt_gpu_roof(&r->gpu, &r->nvrtc, &roof)) return 0;
  rt_say(r, "roof gflops=%.3f memory_gbs=%.3f l2_gbs=%.3f", roof.gflops, roof.memory_gbs,
         roof.l2_gbs);
  rt_say_clocks(r);
  return 1;
}

#else

static int without_cuda(rt_runner *r) {
  return rt_fail(&r->host.error, "device", "the runner was built without CUDA");
}

int rt_use_gpu(rt_runner *r, int ordinal) {
  (void)ordinal;
  return without_cuda(r);
}

void rt_say_clocks(rt_runner *r) { (void)r; }

int rt_become_compiler(rt_runner *r, const char *architecture) {
  (void)architecture;
  return without_cuda(r);
}

int rt_answer_compile(rt_runner *r, const char *from, const char *to, const char *with) {
  (void)from, (void)to, (void)with;
  return without_cuda(r);
}

int rt_describe_gpu(rt_runner *r, int ordinal) {
  (void)ordinal;
  return without_cuda(r);
}

int rt_measure_roof(rt_runner *r, int ordinal, const char *architecture) {
  (void)ordinal, (void)architecture;
  return without_cuda(r);
}

#endif
