/* Which steps of a model wait for which, and how several streams share them: steps that touch no
 * common memory, or only read it, may run at the same time. */
#ifndef SQUALL_BRANCHES_H
#define SQUALL_BRANCHES_H
#include "model.h"

enum { RT_STREAMS = 4 };

typedef struct {
  uint32_t count;     /* of the steps that it waits for, without those that others wait for */
  uint32_t *before;
  uint32_t stream;    /* that it runs on */
} rt_branch;

/* One of each step; nothing where there is no memory for it. Ended by rt_branches_free. */
rt_branch *rt_branches_of(const rt_model *m);
void rt_branches_free(rt_branch *all, uint32_t steps);
/* Whether any step may run beside another. */
int rt_branches_part(const rt_branch *all, uint32_t steps);

#endif
