/* Part of gpu.h: clocks, by NVIDIA's management library, where it is there. Nothing is ever set. */

#define NVML(X)                                                                                     \
  X(nvmlInit_v2, (void))                                                                            \
  X(nvmlDeviceGetHandleByPciBusId_v2, (const char *, cu_handle *))                                  \
  X(nvmlDeviceGetClockInfo, (cu_handle, int, unsigned *))                                           \
  X(nvmlDeviceGetMaxClockInfo, (cu_handle, int, unsigned *))                                        \
  X(nvmlDeviceGetCurrentClocksThrottleReasons, (cu_handle, unsigned long long *))                   \
  X(nvmlDeviceGetTemperature, (cu_handle, int, unsigned *))                                         \
  X(nvmlDeviceGetPowerUsage, (cu_handle, unsigned *))

#define DECLARE_NVML(name, arguments) static int (*name) arguments;
NVML(DECLARE_NVML)
static cu_handle nvml_device;
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2 };

/* Without it there are no clocks, and that is all. */
static void open_nvml(int device) {
  const char *asked = getenv("SQUALL_NVML");
  char id[64];
  void *library = dlopen(asked ? asked : "libnvidia-ml.so.1", RTLD_NOW);
  if (!library) return;
#define RESOLVE_NVML(name, arguments)     \
  *(void **)&name = dlsym(library, #name); \
  if (!name) return;
  NVML(RESOLVE_NVML)
  if (nvmlInit_v2() != 0 || cuDeviceGetPCIBusId(id, sizeof id, device) != 0) return;
  if (nvmlDeviceGetHandleByPciBusId_v2(id, &nvml_device) != 0) nvml_device = NULL;
}

static unsigned nvml_clock(int which, int most) {
  unsigned mhz = 0;
  if (nvml_device && (most ? nvmlDeviceGetMaxClockInfo : nvmlDeviceGetClockInfo)(nvml_device, which, &mhz) != 0) mhz = 0;
  return mhz;
}

/* MHz of the multiprocessors and of memory, and the bits of what slows them down; 0 where unknown. */
static void say_clocks(void) {
  unsigned long long reasons = 0;
  if (nvml_device && nvmlDeviceGetCurrentClocksThrottleReasons(nvml_device, &reasons) != 0) reasons = 0;
  /* Idleness, chosen clocks and displays are no throttling. */
  say(" %u %u %llu", nvml_clock(CLOCK_SM, 0), nvml_clock(CLOCK_MEMORY, 0), reasons & 0xEC);
}
