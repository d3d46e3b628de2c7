/* Runs a model (model.h) once: binds the caller's tensors and the workspace to the addresses of
 * its steps, then calls kernels and moves data, step by step. Programs and exported CPU
 * libraries use it. */
#include "execute.h"
#include <string.h>

/* The base addresses of this run: the workspace, and the caller's inputs and outputs. */
typedef struct {
  unsigned char *at[RT_BASES];
} bases;

/* The address of memory that a step may write: never a constant or an input of the caller's. */
static void *writable(const rt_address *a, const bases *b) { return b->at[a->base] + a->offset; }

static const void *readable(const rt_address *a, const bases *b) {
  return a->at ? a->at : b->at[a->base] + a->offset;
}

static int call(const rt_instruction *i, const bases *b, const rt_pool *pool) {
  const void *data[1 + RT_PARAMETERS];
  void *outputs[RT_PARAMETERS];
  data[0] = pool;
  for (uint32_t d = 0; d < i->data_count; d++)
    data[1 + d] = readable(&i->operands[d], b);
  for (uint32_t o = 0; o < i->output_count; o++)
    outputs[o] = writable(&i->operands[i->data_count + o], b);
  return i->run(data + 1, outputs, i->is_prepared ? readable(&i->prepared, b) : NULL,
                i->has_workspace ? writable(&i->workspace, b) : NULL);
}

/* Whether a step is of branches that are taken. Where a condition is itself of a branch that is
 * not, its byte may be anything: another one of the step's then does not hold. */
static int is_taken(const rt_instruction *i, const bases *b) {
  for (uint32_t n = 0; n < i->condition_count; n++) {
    const unsigned char *flag = readable(&i->conditions[n].flag, b);
    if ((*flag != 0) != i->conditions[n].is) return 0;
  }
  return 1;
}

/* Whether the memory of two ports has a byte in common. */
static int overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
  uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

/* Whether elements lie where their type lets them. */
static int is_aligned(const rt_port *p, const void *at) {
  return (uintptr_t)at % p->element == 0;
}

/* Whether an output may be written where the caller wants it: nothing else that the caller gave
 * lies there. */
static int lies_alone(const rt_model *m, uint32_t output, const void *const *inputs,
                      void *const *outputs) {
  const void *at = outputs[output];
  const size_t bytes = m->outputs[output].bytes;
  for (uint32_t i = 0; i < m->input_count; i++)
    if (overlap(at, bytes, inputs[i], m->inputs[i].bytes)) return 0;
  for (uint32_t o = 0; o < m->output_count; o++)
    if (o != output && overlap(at, bytes, outputs[o], m->outputs[o].bytes)) return 0;
  return 1;
}

/* The base from which the offset of a port leads to this address. */
static unsigned char *base_of(const rt_port *p, const void *at) {
  return (unsigned char *)((uintptr_t)at - (uintptr_t)p->place.offset);
}

/* Says where the bases lie, and copies the inputs that steps do not find at the caller's. */
static void find_bases(const rt_model *m, const void *const *inputs, void *const *outputs,
                 void *workspace, bases *b) {
  b->at[0] = (unsigned char *)workspace;
  for (uint32_t o = 0; o < m->output_count; o++) {
    const rt_port *p = &m->outputs[o];
    if (!p->place.base) continue;
    const int direct = is_aligned(p, outputs[o]) && lies_alone(m, o, inputs, outputs);
    b->at[p->place.base] = direct ? base_of(p, outputs[o]) : b->at[0];
  }
  for (uint32_t i = 0; i < m->input_count; i++) {
    const rt_port *p = &m->inputs[i];
    const int own = p->place.base && !p->is_part;
    const int direct = own && is_aligned(p, inputs[i]);
    if (own) b->at[p->place.base] = direct ? base_of(p, inputs[i]) : b->at[0];
    if (!direct && p->bytes) memcpy(writable(&p->place, b), inputs[i], p->bytes);
  }
}

uint32_t rt_execute(const rt_model *m, const void *const *inputs, void *const *outputs,
                    void *workspace, const rt_pool *pool, const rt_observer *observer) {
  bases b;
  find_bases(m, inputs, outputs, workspace, &b);
  const uint32_t steps = m->plan.step_count;
  for (uint32_t n = 0; n < steps; n++) {
    const rt_instruction *i = &m->instructions[n];
    if (observer) observer->before(observer->state, n);
    if (!is_taken(i, &b)) continue;
    if (i->kind == RT_CALL) {
      if (call(i, &b, pool) != 0) return n;
    } else {
      rt_move_run(&i->move, readable(&i->from, &b), writable(&i->to, &b), pool);
    }
  }
  if (observer) observer->before(observer->state, steps);
  for (uint32_t i = 0; i < m->output_count; i++) {
    const void *made = readable(&m->outputs[i].place, &b);
    if (m->outputs[i].bytes && made != outputs[i]) memcpy(outputs[i], made, m->outputs[i].bytes);
  }
  return RT_NONE;
}
