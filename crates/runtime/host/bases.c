/* Decides for each tensor of a run whether steps read or write it where the caller has it. Runs on
 * CPUs (execute.c) and exported networks on GPUs (gpu_library.c) share this text; bases.h has the
 * conditions. */
#include "bases.h"

/* Whether the memory of two ports has a byte in common. */
static int overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
  uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

/* Whether a tensor has elements, and its address suits their type and the kernels. A tensor without
 * elements stays in the workspace, since the caller may have given no address. */
static int suits(const rt_port *p, const void *at, size_t step) {
  return p->bytes && (uintptr_t)at % p->element == 0 && (uintptr_t)at % step == 0;
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

void rt_bases_find(const rt_model *m, const void *const *inputs, void *const *outputs,
                   void *workspace, size_t step, rt_bases *b) {
  b->at[0] = (unsigned char *)workspace;
  for (uint32_t o = 0; o < m->output_count; o++) {
    const rt_port *p = &m->outputs[o];
    if (!p->place.base) continue;
    const int direct = suits(p, outputs[o], step) && lies_alone(m, o, inputs, outputs);
    b->at[p->place.base] = direct ? base_of(p, outputs[o]) : b->at[0];
  }
  for (uint32_t i = 0; i < m->input_count; i++) {
    const rt_port *p = &m->inputs[i];
    /* An input that is a part of an output lies at that output's base. */
    if (!p->place.base || p->is_part) continue;
    b->at[p->place.base] = suits(p, inputs[i], step) ? base_of(p, inputs[i]) : b->at[0];
  }
}
