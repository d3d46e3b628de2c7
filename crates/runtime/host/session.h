/* A session: one task at a time and up to two kernels of it. Inputs are made, the reference's
 * outputs are kept, and kernels are loaded, checked and timed on the back end of their language
 * (CPU in session.c, GPU in cuda.c). */
#ifndef SQUALL_SESSION_H
#define SQUALL_SESSION_H
#include "host.h"
#include "kernel.h"

struct rt_session;

/* A back end, on which kernels run. All functions take the session and the number of a kernel. */
typedef struct {
  /* Loads the kernel and prepares its weights. */
  int (*load)(struct rt_session *s, int which);
  void (*unload)(struct rt_session *s, int which);
  /* Fills the outputs with a byte, and the workspace with the byte that marks unwritten memory. */
  int (*poison)(struct rt_session *s, int which, int byte);
  /* Brings the outputs to the host. */
  int (*fetch)(struct rt_session *s, int which);
  /* Whether nothing was written beside the kernel's other buffers. */
  int (*intact)(struct rt_session *s, int which);
  /* `calls` calls on an input set; the time of one in ns, or a negative number after an error. */
  double (*window)(struct rt_session *s, int which, int set, long calls);
  /* Leaves nothing of use in the caches. */
  int (*flush)(struct rt_session *s, size_t bytes);
  long most_calls; /* of one window */
  int warm_calls;  /* that an estimate takes, or 0: as many as the clock needs */
} rt_backend;

/* What kernels write, and what they should write for both input sets. */
typedef struct {
  rt_guarded at, expected[2];
  char type;
  double largest[2];
  int gaps; /* what the reference does not write, nothing may write */
} rt_result;

typedef struct {
  rt_plan plan; /* whose only kernel it is */
  const rt_kernel *kernel;
  const rt_backend *on; /* NULL where none is loaded */
  rt_loaded loaded;
  rt_guarded prepared, workspace;
  long calls;   /* in a window */
  double time;  /* of one call, estimated, in ns */
  double error; /* largest seen */
} rt_contender;

typedef struct rt_session {
  rt_host *host;
  const rt_backend *gpu;             /* NULL where there is none */
  int (*gpu_task)(struct rt_session *); /* gives the GPU the inputs */
  struct rt_device *device;          /* the GPU's memory */
  rt_guarded data[2][RT_TENSORS], weights[RT_TENSORS];
  const void *data_pointers[2][RT_TENSORS], *weight_pointers[RT_TENSORS];
  void *output_pointers[RT_TENSORS];
  rt_result outputs[RT_TENSORS];
  uint32_t data_count, weight_count, output_count;
  int mixed; /* some outputs hold whole numbers and some do not */
  int poison;
  rt_contender kernels[2];
  int task_ready, duel_ready, pace_ready;
  size_t threads; /* of a kernel: as many as there are cores */
  size_t duel_flush;
  uint64_t chance;
  unsigned char *flush_memory;
  size_t flush_bytes;
} rt_session;

enum { RT_WINDOWS = 7, RT_PAIRS = 100 };

/* A limit of rt_measure: it is enough to know whether the kernel is right. */
#define RT_UNTIMED 1.0

extern const rt_backend rt_cpu;

/* The task of a plan: its buffers, and the kernel that computes the reference outputs, which are
 * written to `file` (where that is given); without a kernel they are read from there, and nothing
 * is expected where there is neither. The plan
 * passes to the session. */
typedef struct {
  double seconds; /* of a call of the reference */
  size_t nonfinite;
} rt_task_result;
int rt_set_task(rt_session *s, rt_plan *plan, uint64_t seed, const char *file,
                rt_task_result *result);

/* Loads the kernel of a plan, which passes to the session. */
int rt_load_kernel(rt_session *s, int which, rt_plan *plan);
void rt_unload_kernel(rt_session *s, int which);
/* Checked on the first input set; then the time of a warm call on the second, where one is asked
 * for. */
int rt_examine(rt_session *s, int which, double tolerance, int is_timed);
/* Compares all outputs with the reference and looks for writes beside the buffers. */
int rt_right(rt_session *s, int which, int set, double tolerance);

/* A kernel that stays loaded: runs tell how long it took beside them. */
int rt_pace(rt_session *s, rt_plan *plan, double tolerance, size_t flush);

typedef struct {
  double error, samples[RT_WINDOWS], pace;
  long calls;
  int windows, paced;
} rt_measured;
int rt_measure(rt_session *s, rt_plan *plan, double tolerance, double limit, size_t flush,
               rt_measured *result);

/* Two kernels that stand ready, and pairs of their windows. After a failure `loser` says which. */
int rt_duel(rt_session *s, rt_plan plans[2], double tolerance, size_t flush, int *loser);
int rt_pair(rt_session *s, double times[2]);

#endif
