/* Part of gpu.h: what the GPU can do at most, by the kernels of roof.cu.
 *   runner roof ORDINAL:ARCHITECTURE -> CPU roof GFLOPS MEMORY_GBS L2_GBS SM_MHZ MEMORY_MHZ REASONS */

/* The shortest of a few launches, in ns. */
static double shortest(cu_handle f, unsigned blocks, unsigned threads, void **arguments) {
  double best = -1, all = 0;
  for (int i = 0; i < 20 && (i < 4 || all < 2e7); i++) {
    float ms = 0;
    if (!good(cuEventRecord(began, stream), "timing") || !good(cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL), "the probe") ||
        !good(cuEventRecord(ended, stream), "timing") || !good(cuEventSynchronize(ended), "the probe") || !good(cuEventElapsedTime(&ms, began, ended), "timing"))
      return -1;
    if (i > 1 && (best < 0 || ms * 1e6 < best)) best = ms * 1e6;
    all += ms * 1e6;
  }
  return best > 0 ? best : fail("launch", "the probe took no time") - 1;
}

static int measure_roof(const char *argument) {
  int device, processors, cache, ordinal = atoi(argument), rounds = 32, times = 32;
  const char *colon = strchr(argument, ':');
  cu_handle module, fused, copy, reads;
  static device_buffer a, b;
  snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", colon ? colon + 1 : "");
  if (!open_gpu(ordinal) || !open_nvrtc() || !compile("roof.cu", "roof.cubin", NULL)) return 0;
  reply_length = 0;
  if (!good(cuModuleLoad(&module, "./roof.cubin"), "the probe") || !good(cuModuleGetFunction(&fused, module, "fused"), "the probe") ||
      !good(cuModuleGetFunction(&copy, module, "copy"), "the probe") || !good(cuModuleGetFunction(&reads, module, "reads"), "the probe") ||
      !good(cuDeviceGet(&device, ordinal), "the device") || !good(cuDeviceGetAttribute(&processors, 16, device), "its attributes") ||
      !good(cuDeviceGetAttribute(&cache, 38, device), "its attributes"))
    return 0;
  /* Several times what the cache holds, in both; a quarter of it. */
  size_t large = (size_t)(cache > 1 << 20 ? cache : 1 << 20) * 8 / 16 * 16, small = large / 32 / 16 * 16;
  if (!gpu_place(&a, large, 1) || !gpu_place(&b, large, 1)) return 0;
  cu_pointer from = gpu_at(&a), to = gpu_at(&b);
  float factor = 1.0001f, summand = 0.5f;
  long long vectors = (long long)(large / 16), few = (long long)(small / 16);
  unsigned blocks = (unsigned)processors * 4, wide = (unsigned)processors * 16, threads = 512;
  double flop = shortest(fused, blocks, threads, (void *[]){&to, &factor, &summand, &rounds});
  if (flop > 0 && flop < 2e5) {
    /* Launching shall not count; what needs longer than that for so little is no GPU. */
    rounds = 2048;
    flop = shortest(fused, blocks, threads, (void *[]){&to, &factor, &summand, &rounds});
  }
  if (flop < 0) return 0;
  double moved = shortest(copy, wide, threads, (void *[]){&from, &to, &vectors});
  if (moved < 0) return 0;
  double read = shortest(reads, blocks, threads, (void *[]){&from, &to, &few, &times});
  if (read < 0) return 0;
  say("roof %.3f %.3f %.3f", 32.0 * rounds * blocks * threads / flop, 2.0 * (double)large / moved, (double)small * times / read);
  say_clocks();
  return 1;
}
