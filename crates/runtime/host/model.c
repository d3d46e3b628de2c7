/* Makes a model of a plan: gives every buffer its address and every step its operands, so that a
 * run need not look anything up. model.h has the types; execute.c runs it. */
#include "model.h"
#include <stdlib.h>
#include <string.h>

static int no_room(rt_error *e) { return rt_fail(e, "memory", "there is not enough memory"); }

/* Takes room in the workspace. */
static int take(rt_model *m, uint64_t bytes, uint64_t *offset, rt_error *e) {
  uint64_t room = (bytes + RT_ALIGNMENT - 1) / RT_ALIGNMENT * RT_ALIGNMENT;
  *offset = m->workspace_bytes;
  if (room < bytes || room > SIZE_MAX / 2 - m->workspace_bytes)
    return rt_fail(e, "memory", "the plan needs more memory than there are addresses");
  m->workspace_bytes += (size_t)room;
  return 1;
}

static int is_written(rt_role r) {
  return r == RT_DATA || r == RT_OUTPUT || r == RT_SCRATCH || r == RT_WORKSPACE;
}

/* Gives every buffer its address. Weights that only a preparation reads have none. */
static int place_buffers(rt_model *m, const void *const *contents, rt_error *e) {
  const rt_plan *p = &m->plan;
  uint64_t *regions = calloc(p->region_count + 1u, sizeof *regions);
  if (!regions) return no_room(e);
  int fine = 1;
  for (uint32_t i = 0; i < p->region_count && fine; i++)
    if (is_written(p->regions[i].role)) fine = take(m, p->regions[i].bytes, &regions[i], e);
  for (uint32_t i = 0; i < p->buffer_count && fine; i++) {
    const rt_buffer *b = &p->buffers[i];
    rt_address *a = &m->buffers[i];
    if (b->value_count) {
      a->at = (const unsigned char *)b->values;
    } else if (b->region == RT_NONE) {
      fine = is_written(b->role)
                 ? take(m, b->is.count * rt_size_of(b->is.type), &a->offset, e)
                 : rt_fail(e, "plan", "buffer %u is constant and lies in no region", i);
    } else if (is_written(p->regions[b->region].role)) {
      a->offset = regions[b->region] + b->offset;
    } else if (contents[b->region]) {
      a->at = (const unsigned char *)contents[b->region] + b->offset;
    } else if (b->role != RT_WEIGHT && b->is.count) {
      fine = rt_fail(e, "plan", "buffer %u has no content", i);
    }
  }
  free(regions);
  return fine;
}

static int place_ports(rt_model *m, rt_error *e) {
  const rt_plan *p = &m->plan;
  m->inputs = calloc(2u * p->buffer_count + 1u, sizeof *m->inputs);
  if (!m->inputs) return no_room(e);
  m->outputs = m->inputs + p->buffer_count;
  for (uint32_t i = 0; i < p->buffer_count; i++) {
    const rt_buffer *b = &p->buffers[i];
    if (b->role != RT_DATA && b->role != RT_OUTPUT) continue;
    const size_t element = rt_size_of(b->is.type);
    rt_port port = {m->buffers[i], b->is.count * element, element, b->is.type, b->of != RT_NONE,
                    b->is.grown};
    if (b->role == RT_DATA) m->inputs[m->input_count++] = port;
    else m->outputs[m->output_count++] = port;
  }
  return 1;
}

/* Gives the inputs and outputs that steps may read and write where the caller has them a base
 * each, and what is a part of them the same. */
static void place_bases(rt_model *m) {
  const rt_plan *p = &m->plan;
  uint32_t bases = 1;
  for (uint32_t i = 0; i < p->buffer_count; i++) {
    uint32_t of = p->buffers[i].of;
    if (of == RT_NONE) continue;
    if (!m->buffers[of].base && bases < RT_BASES) m->buffers[of].base = bases++;
    m->buffers[i].base = m->buffers[of].base;
  }
}

/* Lists the operands of a call from `at` on. */
static void ready_call(rt_model *m, const rt_step *s, rt_instruction *to, rt_address *at) {
  const rt_kernel *k = &m->plan.kernels[s->kernel];
  rt_address *data = at, *outputs = at + k->data_count;
  for (uint32_t i = 0; i < k->parameter_count; i++) {
    const rt_address *a = &m->buffers[s->buffers[i]];
    if (k->parameters[i].role == RT_DATA) *data++ = *a;
    else if (k->parameters[i].role == RT_OUTPUT) *outputs++ = *a;
  }
  to->operands = at;
  to->data_count = k->data_count;
  to->output_count = k->output_count;
  uint64_t prepared = s->buffers[k->parameter_count];
  uint64_t workspace = s->buffers[k->parameter_count + 1];
  to->is_prepared = prepared != RT_NONE;
  to->has_workspace = workspace != RT_NONE;
  if (to->is_prepared) to->prepared = m->buffers[prepared];
  if (to->has_workspace) to->workspace = m->buffers[workspace];
}

static rt_moved moved(const rt_plan *p, uint32_t buffer) {
  const char type = p->buffers[buffer].is.type;
  return (rt_moved){rt_size_of(type), type == 'h'};
}

static int ready_steps(rt_model *m, rt_run_function *const *runs, rt_error *e) {
  const rt_plan *p = &m->plan;
  size_t operands = 1, conditions = 1;
  for (uint32_t i = 0; i < p->step_count; i++) {
    const rt_step *s = &p->steps[i];
    if (s->kind == RT_CALL) operands += p->kernels[s->kernel].parameter_count;
    conditions += s->condition_count;
  }
  m->instructions = calloc(p->step_count + 1u, sizeof *m->instructions);
  m->operands = calloc(operands, sizeof *m->operands);
  m->conditions = calloc(conditions, sizeof *m->conditions);
  if (!m->instructions || !m->operands || !m->conditions) return no_room(e);
  rt_address *at = m->operands;
  rt_condition *condition = m->conditions;
  for (uint32_t i = 0; i < p->step_count; i++) {
    const rt_step *s = &p->steps[i];
    rt_instruction *to = &m->instructions[i];
    to->kind = s->kind;
    to->conditions = condition;
    to->condition_count = s->condition_count;
    for (uint32_t n = 0; n < s->condition_count; n++)
      *condition++ =
          (rt_condition){m->buffers[s->conditions[2 * n]], (int)s->conditions[2 * n + 1]};
    if (s->kind == RT_CALL) {
      to->run = runs[s->kernel];
      ready_call(m, s, to, at);
      at += to->data_count + to->output_count;
      continue;
    }
    uint32_t from = s->kind == RT_FILL ? s->to : s->from;
    if (s->kind != RT_FILL) to->from = m->buffers[from];
    to->to = m->buffers[s->to];
    rt_move_ready(&to->move, s, moved(p, from), moved(p, s->to));
  }
  return 1;
}

int rt_model_open(rt_model *m, rt_plan *plan, const void *const *contents,
                  rt_run_function *const *runs, rt_error *e) {
  memset(m, 0, sizeof *m);
  m->plan = *plan;
  memset(plan, 0, sizeof *plan);
  m->buffers = calloc(m->plan.buffer_count + 1u, sizeof *m->buffers);
  if (!m->buffers) no_room(e);
  else if (place_buffers(m, contents, e)) {
    place_bases(m);
    if (place_ports(m, e) && ready_steps(m, runs, e)) return 1;
  }
  rt_model_close(m);
  return 0;
}

void rt_model_close(rt_model *m) {
  free(m->buffers), free(m->inputs), free(m->operands), free(m->instructions);
  free(m->conditions);
  rt_plan_close(&m->plan);
  memset(m, 0, sizeof *m);
}
