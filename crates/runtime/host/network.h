/* The network of a program on a CPU: its plan and constants come from files of the folder, its
 * kernels are linked in or loaded, and its weights are prepared when it is opened. */
#ifndef SQUALL_NETWORK_H
#define SQUALL_NETWORK_H
#include "execute.h"
#include "kernel.h"
#include "packed.h"

typedef struct {
  rt_host *host;
  rt_model model;
  unsigned char **regions; /* memory of constants and prepared weights; NULL for others */
  size_t *mapped;          /* of a region that is mapped, its bytes */
  rt_packed packed;        /* the file of the region of prepared weights, where they are kept */
  uint32_t packed_region;  /* that region, or RT_NONE */
  int is_ready;            /* whether that file is whole */
  rt_loaded *kernels;
  rt_run_function **runs;
  void *workspace;
  rt_pool pool;
  int has_pool;
  volatile uint32_t current; /* the step that runs, for the message of a crash */
} rt_network;

/* Takes a plan over: memory, constants from their files, kernels, prepared weights, which come from
 * the file `packed`, or are kept there for the next time; nothing is kept where that is NULL. */
int rt_network_open(rt_network *n, rt_host *h, rt_plan *plan, int threads, const char *packed);
/* Runs all steps once. Where `best` is given it holds the least time in ns of each step. */
int rt_network_run(rt_network *n, const void *const *inputs, void *const *outputs, uint64_t *best);
void rt_network_close(rt_network *n);

/* What the record of an output names whose memory grew in the run: its bytes and where they lie. */
void *rt_grown(const void *record, size_t *bytes);
/* Lets go of what the last run gave of such outputs. */
void rt_network_let_go(const rt_network *n, void *const *outputs);
/* Whether two runs gave the same. */
int rt_network_is_same(const rt_network *n, void *const *first, void *const *outputs);

#endif
