/* A plan of many steps on the CPU: everything is made ready once, and a run allocates nothing. */
#ifndef SQUALL_NETWORK_H
#define SQUALL_NETWORK_H
#include "kernel.h"

struct rt_instruction;

typedef struct {
  rt_host *host;
  rt_plan plan;
  int threads; /* that moves of data may use */
  unsigned char **regions, **buffers;
  rt_loaded *kernels;
  struct rt_instruction *instructions; /* one a step */
  const void **pointers;               /* that calls are given */
  volatile uint32_t current;           /* the step that runs, for the message of a crash */
} rt_network;

/* Takes a plan over: memory, constants from their files, kernels, prepared weights. */
int rt_network_open(rt_network *n, rt_host *h, rt_plan *plan, int threads);
/* Runs all steps once. Where `best` is given it holds the least time in ns of each step. */
int rt_network_run(rt_network *n, uint64_t *best);
void rt_network_close(rt_network *n);

/* The memory of the n-th buffer of a role, and its size in bytes; NULL where there is none. */
void *rt_network_buffer(const rt_network *n, rt_role role, uint32_t number, size_t *bytes);

/* Memory for walking from end to end: of large pages where the system has them. */
void *rt_large_memory(size_t bytes);

#endif
