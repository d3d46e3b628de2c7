/* Branches of a model on a GPU: which steps wait for which others, and how several streams share
 * the steps. Steps that touch no common memory, or only read it, may run at the same time. */
#ifndef SQUALL_BRANCHES_H
#define SQUALL_BRANCHES_H
#include "model.h"

enum { RT_STREAMS = 4 };

typedef struct {
  uint32_t count;     /* of the steps that it waits for directly */
  uint32_t *before;
  uint32_t stream;    /* the stream that it runs on */
} rt_branch;

/* One for each step; NULL where memory is lacking. Freed by rt_branches_free. */
rt_branch *rt_branches_of(const rt_model *m);
void rt_branches_free(rt_branch *all, uint32_t steps);
/* Whether any step may run beside another. */
int rt_branches_part(const rt_branch *all, uint32_t steps);

#endif
