/* Opens NVRTC (NVIDIA's runtime compiler), compiles CUDA C to cubins, and measures a GPU's roof
 * (peak and bandwidths) by kernels that it compiles. nvrtc.h has the interface. */
#define _GNU_SOURCE
#include "nvrtc.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLAGS = 100 };

static int open_library(rt_host *h, rt_nvrtc *n) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                      "/usr/local/cuda/lib64/libnvrtc.so"};
  const char *asked = getenv("SQUALL_NVRTC");
  void *library = asked ? dlopen(asked, RTLD_NOW) : NULL;
  for (int i = 0; !library && !asked && i < 4; i++) library = dlopen(names[i], RTLD_NOW);
  if (!library)
    return rt_fail(&h->error, "device",
                   "no NVRTC, which compiles CUDA C: %s (SQUALL_NVRTC names its file)", dlerror());
#define RESOLVE_NVRTC(name, arguments)                                                            \
  *(void **)&n->name = dlsym(library, #name);                                                     \
  if (!n->name)                                                                                   \
    return rt_fail(&h->error, "device", "the CUDA library is too old: it has no %s", #name);
  RT_NVRTC(RESOLVE_NVRTC)
  return 1;
}

int rt_nvrtc_open(rt_host *h, const char *architecture, rt_nvrtc *n) {
  memset(n, 0, sizeof *n);
  n->host = h;
  snprintf(n->architecture, sizeof n->architecture, "--gpu-architecture=%.20s", architecture);
  return open_library(h, n);
}

static char *read_text(rt_host *h, const char *path) {
  FILE *f = fopen(path, "r");
  char *text = NULL;
  long length = 0;
  if (f && fseek(f, 0, SEEK_END) == 0 && (length = ftell(f)) >= 0) {
    rewind(f);
    text = calloc(1, (size_t)length + 1);
    if (text && fread(text, 1, (size_t)length, f) != (size_t)length) {
      free(text);
      text = NULL;
    }
  }
  if (f) fclose(f);
  if (!text) rt_fail(&h->error, "file", "%s cannot be read", path);
  return text;
}

/* A log from its first line that tells of an error. */
static void first_complaint(rt_host *h, char *log) {
  char *start = strstr(log, "error");
  while (start && start > log && start[-1] != '\n') start--;
  rt_fail(&h->error, "build", "%.600s", start ? start : log);
}

static int write_cubin(rt_nvrtc *n, cu_handle program, const char *to, size_t *size) {
  rt_error *e = &n->host->error;
  char *cubin = NULL;
  if (n->nvrtcGetCUBINSize(program, size) != 0 || !(cubin = malloc(*size + 1)) ||
      n->nvrtcGetCUBIN(program, cubin) != 0) {
    free(cubin);
    return rt_fail(e, "build", "NVRTC gives no cubin");
  }
  FILE *f = fopen(to, "w");
  int fine = f && fwrite(cubin, 1, *size, f) == *size;
  if (f && fclose(f) != 0) fine = 0;
  free(cubin);
  return fine || rt_fail(e, "file", "%s: %s", to, strerror(errno));
}

/* Compiles; a failure says what NVRTC complains of. */
static int build(rt_nvrtc *n, cu_handle program, int flags, const char *const *options) {
  if (n->nvrtcCompileProgram(program, flags, options) == 0) return 1;
  size_t size = 0;
  char *log = n->nvrtcGetProgramLogSize(program, &size) == 0 ? calloc(1, size + 1) : NULL;
  if (log) n->nvrtcGetProgramLog(program, log);
  if (log && *log) first_complaint(n->host, log);
  else rt_fail(&n->host->error, "build", "NVRTC fails");
  free(log);
  return 0;
}

static int compile_text(rt_nvrtc *n, const char *text, char *settings, const char *to,
                        rt_cubin *made) {
  rt_error *e = &n->host->error;
  const char *options[FLAGS] = {n->architecture, "-w"}, *names[RT_NAMES];
  int flags = 2, fine = 1;
  made->count = 0;
  /* A source of ours leaves out what says that functions are the device's. */
  if (!settings) options[flags++] = "-default-device";
  for (char *next, *line = settings; line && *line; line = next) {
    next = strchr(line, '\n');
    if (next) *next++ = 0;
    if (strncmp(line, "option ", 7) == 0 && flags < FLAGS) options[flags++] = line + 7;
    if (strncmp(line, "name ", 5) == 0 && made->count < RT_NAMES) names[made->count++] = line + 5;
  }
  cu_handle program = NULL;
  cu_result code = n->nvrtcCreateProgram(&program, text, "kernel.cu", 0, NULL, NULL);
  for (int i = 0; i < made->count && code == 0; i++)
    code = n->nvrtcAddNameExpression(program, names[i]);
  if (code != 0) fine = rt_fail(e, "build", "NVRTC error %d", code);
  fine = fine && build(n, program, flags, options) && write_cubin(n, program, to, &made->bytes);
  for (int i = 0; i < made->count && fine; i++) {
    const char *lowered = NULL;
    if (n->nvrtcGetLoweredName(program, names[i], &lowered) != 0 || strlen(lowered) >= RT_NAME)
      fine = rt_fail(e, "build", "there is no function %s", names[i]);
    else snprintf(made->names[i], RT_NAME, "%s", lowered);
  }
  n->nvrtcDestroyProgram(&program);
  return fine;
}

int rt_compile(rt_nvrtc *n, const char *from, const char *to, const char *with, rt_cubin *made) {
  char *text = read_text(n->host, from);
  char *settings = text && with ? read_text(n->host, with) : NULL;
  int fine = text && (!with || settings) && compile_text(n, text, settings, to, made);
  free(text);
  free(settings);
  return fine;
}

/* ---- the roof ---- */

/* The shortest of a few launches, in ns. */
static double shortest(rt_gpu *g, cu_handle f, unsigned blocks, unsigned threads,
                       void **arguments) {
  double best = -1, all = 0;
  for (int i = 0; i < 20 && (i < 4 || all < 2e7); i++) {
    float ms = 0;
    if (!rt_gpu_good(g, g->cuEventRecord(g->began, g->stream), "timing") ||
        !rt_gpu_good(
            g, g->cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, g->stream, arguments, NULL),
            "the probe") ||
        !rt_gpu_good(g, g->cuEventRecord(g->ended, g->stream), "timing") ||
        !rt_gpu_good(g, g->cuEventSynchronize(g->ended), "the probe") ||
        !rt_gpu_good(g, g->cuEventElapsedTime(&ms, g->began, g->ended), "timing"))
      return -1;
    if (i > 1 && (best < 0 || ms * 1e6 < best)) best = ms * 1e6;
    all += ms * 1e6;
  }
  if (best <= 0) rt_fail(&g->host->error, "launch", "the probe took no time");
  return best > 0 ? best : -1;
}

static int probe(rt_gpu *g, cu_handle module, const char *name, cu_handle *f) {
  return rt_gpu_good(g, g->cuModuleGetFunction(f, module, name), "the probe");
}

int rt_gpu_roof(rt_gpu *g, rt_nvrtc *n, rt_roof *roof) {
  int processors, cache, rounds = 32, times = 32;
  cu_handle module, fused, copy, reads;
  rt_device_buffer a = {0, 0, 0}, b = {0, 0, 0};
  rt_cubin *made = calloc(1, sizeof *made);
  if (!made) return rt_fail(&g->host->error, "memory", "no memory for the probe");
  int compiled = rt_compile(n, "roof.cu", "roof.cubin", NULL, made);
  free(made);
  if (!compiled || !rt_gpu_good(g, g->cuModuleLoad(&module, "./roof.cubin"), "the probe") ||
      !probe(g, module, "fused", &fused) || !probe(g, module, "copy", &copy) ||
      !probe(g, module, "reads", &reads) || !rt_gpu_attribute(g, 16, &processors) ||
      !rt_gpu_attribute(g, 38, &cache))
    return 0;
  /* Several times what the cache holds, in both; a quarter of it. */
  size_t large = (size_t)(cache > 1 << 20 ? cache : 1 << 20) * 8 / 16 * 16;
  size_t small = large / 32 / 16 * 16;
  if (!rt_gpu_place(g, &a, large, 1) || !rt_gpu_place(g, &b, large, 1)) return 0;
  cu_pointer from = rt_gpu_at(&a), to = rt_gpu_at(&b);
  float factor = 1.0001f, summand = 0.5f;
  long long vectors = (long long)(large / 16), few = (long long)(small / 16);
  unsigned blocks = (unsigned)processors * 4, wide = (unsigned)processors * 16, threads = 512;
  void *arguments[] = {&to, &factor, &summand, &rounds};
  double flop = shortest(g, fused, blocks, threads, arguments);
  if (flop > 0 && flop < 2e5) {
    /* Launching shall not count; what needs longer than that for so little is no GPU. */
    rounds = 2048;
    flop = shortest(g, fused, blocks, threads, arguments);
  }
  if (flop < 0) return 0;
  double moved = shortest(g, copy, wide, threads, (void *[]){&from, &to, &vectors});
  if (moved < 0) return 0;
  double read = shortest(g, reads, blocks, threads, (void *[]){&from, &to, &few, &times});
  if (read < 0) return 0;
  roof->gflops = 32.0 * rounds * blocks * threads / flop;
  roof->memory_gbs = 2.0 * (double)large / moved;
  roof->l2_gbs = (double)small * times / read;
  return 1;
}
