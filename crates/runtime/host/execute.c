/* How a model runs. */
#include "execute.h"
#include <string.h>

/* Of what lies in the workspace. */
static void *writable(const rt_address *a, void *workspace) {
  return (unsigned char *)workspace + a->offset;
}

static const void *readable(const rt_address *a, const void *workspace) {
  return a->at ? a->at : (const unsigned char *)workspace + a->offset;
}

static int call(const rt_instruction *i, void *workspace, const rt_pool *pool) {
  const void *data[1 + RT_PARAMETERS];
  void *outputs[RT_PARAMETERS];
  data[0] = pool;
  for (uint32_t d = 0; d < i->data_count; d++)
    data[1 + d] = readable(&i->operands[d], workspace);
  for (uint32_t o = 0; o < i->output_count; o++)
    outputs[o] = writable(&i->operands[i->data_count + o], workspace);
  return i->run(data + 1, outputs, i->is_prepared ? readable(&i->prepared, workspace) : NULL,
                i->has_workspace ? writable(&i->workspace, workspace) : NULL);
}

/* Whether a step is of branches that are taken. Where a condition is itself of a branch that is
 * not, its byte may be anything: another one of the step's then does not hold. */
static int is_taken(const rt_instruction *i, const void *workspace) {
  for (uint32_t n = 0; n < i->condition_count; n++) {
    const unsigned char *flag = readable(&i->conditions[n].flag, workspace);
    if ((*flag != 0) != i->conditions[n].is) return 0;
  }
  return 1;
}

uint32_t rt_execute(const rt_model *m, const void *const *inputs, void *const *outputs,
                    void *workspace, const rt_pool *pool, const rt_observer *observer) {
  for (uint32_t i = 0; i < m->input_count; i++)
    if (m->inputs[i].bytes)
      memcpy(writable(&m->inputs[i].place, workspace), inputs[i], m->inputs[i].bytes);
  const uint32_t steps = m->plan.step_count;
  for (uint32_t n = 0; n < steps; n++) {
    const rt_instruction *i = &m->instructions[n];
    if (observer) observer->before(observer->state, n);
    if (!is_taken(i, workspace)) continue;
    if (i->kind == RT_CALL) {
      if (call(i, workspace, pool) != 0) return n;
    } else {
      rt_move_run(&i->move, readable(&i->from, workspace), writable(&i->to, workspace), pool);
    }
  }
  if (observer) observer->before(observer->state, steps);
  for (uint32_t i = 0; i < m->output_count; i++)
    if (m->outputs[i].bytes)
      memcpy(outputs[i], writable(&m->outputs[i].place, workspace), m->outputs[i].bytes);
  return RT_NONE;
}
