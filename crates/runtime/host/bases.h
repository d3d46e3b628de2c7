/* Where the memory of one run of a model (model.h) lies: the workspace, and the inputs and outputs
 * that steps read and write in the caller's own memory. Of a run on a GPU the addresses are the
 * device's. */
#ifndef SQUALL_BASES_H
#define SQUALL_BASES_H
#include "model.h"

/* The base addresses of a run, to which offsets of the model are added. */
typedef struct {
  unsigned char *at[RT_BASES];
} rt_bases;

/* Says where the bases lie: `inputs` and `outputs` are the caller's tensors in the order of the
 * ports, at any address. A base is in the caller's memory where the plan says that steps may find
 * a tensor there, its address is a multiple of its elements' size and of `step`, it has elements,
 * and, of an output, no other tensor of the caller has a byte in common with it; else it is the
 * workspace. A port whose place is another than the caller's tensor has to be copied: an input
 * ahead of all steps, an output behind them. */
void rt_bases_find(const rt_model *m, const void *const *inputs, void *const *outputs,
                   void *workspace, size_t step, rt_bases *b);

/* The address of memory that a step may write: never a constant or an input of the caller's. */
static inline void *rt_target(const rt_address *a, const rt_bases *b) {
  return b->at[a->base] + a->offset;
}

/* The address of memory that a step may read. */
static inline const void *rt_source(const rt_address *a, const rt_bases *b) {
  return a->at ? a->at : b->at[a->base] + a->offset;
}

#endif
