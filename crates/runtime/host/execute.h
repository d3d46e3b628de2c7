/* A run of a model (model.h) on a CPU. It allocates nothing, opens nothing, prints nothing, and
 * writes no memory but the workspace and the outputs. */
#ifndef SQUALL_EXECUTE_H
#define SQUALL_EXECUTE_H
#include "model.h"

/* Is told the number of each step before it runs, and after the last one the number of steps. */
typedef struct {
  void *state;
  void (*before)(void *state, uint32_t step);
} rt_observer;

/* Runs all steps: `inputs` and `outputs` are the caller's tensors in the order of the ports, at any
 * address. Steps read and write them there, without a copy, where the plan says that they may, the
 * address suits the type of the elements, and an output meets no other tensor. `workspace` has
 * workspace_bytes and is aligned by RT_ALIGNMENT. `pool` and `observer` may be NULL. Gives RT_NONE,
 * or the number of the step whose kernel did not succeed: outputs may be half written then. */
uint32_t rt_execute(const rt_model *m, const void *const *inputs, void *const *outputs,
                    void *workspace, const rt_pool *pool, const rt_observer *observer);

#endif
