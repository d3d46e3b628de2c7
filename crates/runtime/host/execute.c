/* Runs a model (model.h) once: binds the caller's tensors and the workspace to the addresses of
 * its steps, then calls kernels and moves data, step by step. Programs and exported CPU
 * libraries use it. */
#include "execute.h"
#include "bases.h"
#include <string.h>

static int call(const rt_instruction *i, const rt_bases *b, const rt_pool *pool) {
  const void *data[1 + RT_PARAMETERS];
  void *outputs[RT_PARAMETERS];
  data[0] = pool;
  for (uint32_t d = 0; d < i->data_count; d++)
    data[1 + d] = rt_source(&i->operands[d], b);
  for (uint32_t o = 0; o < i->output_count; o++)
    outputs[o] = rt_target(&i->operands[i->data_count + o], b);
  return i->run(data + 1, outputs, i->is_prepared ? rt_source(&i->prepared, b) : NULL,
                i->has_workspace ? rt_target(&i->workspace, b) : NULL);
}

/* Whether a step is of branches that are taken. Where a condition is itself of a branch that is
 * not, its byte may be anything: another one of the step's then does not hold. */
static int is_taken(const rt_instruction *i, const rt_bases *b) {
  for (uint32_t n = 0; n < i->condition_count; n++) {
    const unsigned char *flag = rt_source(&i->conditions[n].flag, b);
    if ((*flag != 0) != i->conditions[n].is) return 0;
  }
  return 1;
}

/* Copies the inputs that steps do not find at the caller's to where they find them. */
static void copy_inputs(const rt_model *m, const void *const *inputs, const rt_bases *b) {
  for (uint32_t i = 0; i < m->input_count; i++) {
    const rt_port *p = &m->inputs[i];
    void *to = rt_target(&p->place, b);
    if (p->bytes && to != inputs[i]) memcpy(to, inputs[i], p->bytes);
  }
}

uint32_t rt_execute(const rt_model *m, const void *const *inputs, void *const *outputs,
                    void *workspace, const rt_pool *pool, const rt_observer *observer) {
  rt_bases b;
  /* Kernels for CPUs take any address that suits the elements. */
  rt_bases_find(m, inputs, outputs, workspace, 1, &b);
  copy_inputs(m, inputs, &b);
  const uint32_t steps = m->plan.step_count;
  for (uint32_t n = 0; n < steps; n++) {
    const rt_instruction *i = &m->instructions[n];
    if (observer) observer->before(observer->state, n);
    if (!is_taken(i, &b)) continue;
    if (i->kind == RT_CALL) {
      if (call(i, &b, pool) != 0) return n;
    } else {
      rt_move_run(&i->move, rt_source(&i->from, &b), rt_target(&i->to, &b), pool);
    }
  }
  if (observer) observer->before(observer->state, steps);
  for (uint32_t i = 0; i < m->output_count; i++) {
    const void *made = rt_source(&m->outputs[i].place, &b);
    if (m->outputs[i].bytes && made != outputs[i]) memcpy(outputs[i], made, m->outputs[i].bytes);
  }
  return RT_NONE;
}
