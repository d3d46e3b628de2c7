/* Checks that the parts of a plan fit together, so that the code that runs a plan need not:
 * every number refers to an existing buffer, kernel or region, every size and offset stays
 * inside, and no sum overflows (RT_MOST_BYTES bounds each number, so that a sum of three fits 64
 * bits). crates/runtime/src/plan/verify.rs checks the same. */
#include "plan.h"
#include <string.h>

static const char *const roles[] = {"data",     "weight",   "output",   "scratch",
                                    "constant", "prepared", "workspace"};

enum { RT_LINE = 64 };

static uint64_t bytes_of(const rt_tensor *t) { return t->count * rt_size_of(t->type); }

static int regions_fit(const rt_plan *p, rt_error *e) {
  for (uint32_t i = 0; i < p->region_count; i++) {
    const rt_region *r = &p->regions[i];
    int filled = r->role == RT_CONSTANT || r->role == RT_WEIGHT;
    if (!filled && r->role != RT_SCRATCH && r->role != RT_PREPARED)
      return rt_fail(e, "plan", "plan: region %u cannot be of %s", i, roles[r->role]);
    if (filled != (r->file != NULL))
      return rt_fail(e, "plan", "plan: region %u %s", i, filled ? "needs a file" : "has a file");
  }
  return 1;
}

/* Which buffers may lie in which regions. */
static int may_lie(rt_role buffer, rt_role region) {
  if (region != RT_SCRATCH) return buffer == region;
  return buffer == RT_DATA || buffer == RT_OUTPUT || buffer == RT_SCRATCH || buffer == RT_WORKSPACE;
}

/* Whether a buffer that is said to be a part of an input or an output lies inside of it. */
static int is_part(const rt_plan *p, const rt_buffer *b) {
  if (b->of == RT_NONE) return 1;
  if (b->of >= p->buffer_count) return 0;
  const rt_buffer *whole = &p->buffers[b->of];
  if (whole->role != RT_OUTPUT && (whole->role != RT_DATA || b->role != RT_SCRATCH)) return 0;
  if (b->role != RT_SCRATCH && b->role != RT_DATA) return 0;
  if (whole->of != RT_NONE || whole->is.grown) return 0;
  if (whole->region == RT_NONE || whole->region != b->region) return 0;
  return whole->is.type == b->is.type && b->offset >= whole->offset &&
         b->offset - whole->offset <= bytes_of(&whole->is) &&
         bytes_of(&b->is) <= bytes_of(&whole->is) - (b->offset - whole->offset);
}

static int buffers_fit(const rt_plan *p, rt_error *e) {
  for (uint32_t i = 0; i < p->buffer_count; i++) {
    const rt_buffer *b = &p->buffers[i];
    if (b->is.bounded && !(b->is.low <= b->is.high && b->is.high - b->is.low < 1e300))
      return rt_fail(e, "plan", "plan: the range of buffer %u is empty", i);
    if ((b->is.bounded || b->is.file) && b->role != RT_DATA && b->role != RT_WEIGHT)
      return rt_fail(e, "plan", "plan: buffer %u is no input", i);
    if (b->is.hard && (b->is.type != 'f' || (b->role != RT_DATA && b->role != RT_WEIGHT)))
      return rt_fail(e, "plan", "plan: buffer %u holds hard values, and is no input of f32", i);
    if (b->is.gaps && b->role != RT_OUTPUT)
      return rt_fail(e, "plan", "plan: buffer %u is no output, and has gaps", i);
    if (b->is.grown && (b->role != RT_OUTPUT || b->is.type != 'l' || b->is.count != RT_RECORD))
      return rt_fail(e, "plan", "plan: buffer %u is no record of an output, and grown", i);
    if (b->value_count && (b->role != RT_CONSTANT || b->is.type != 'l' || b->region != RT_NONE ||
                           b->is.count != b->value_count))
      return rt_fail(e, "plan", "plan: buffer %u is no constant of the values that it has", i);
    if (b->region == RT_NONE) {
      if (b->role == RT_CONSTANT && !b->value_count)
        return rt_fail(e, "plan", "plan: constant %u lies in no region", i);
      continue;
    }
    if (b->region >= p->region_count)
      return rt_fail(e, "plan", "plan: buffer %u lies in a region that is not there", i);
    const rt_region *r = &p->regions[b->region];
    if (!may_lie(b->role, r->role))
      return rt_fail(e, "plan", "plan: buffer %u may not lie in its region", i);
    /* Values may be parts of others; all else begins a line of the cache. */
    uint64_t step = b->role == RT_SCRATCH ? rt_size_of(b->is.type)
                    : b->role == RT_WEIGHT ? 1 : RT_LINE;
    if (b->offset % step || b->offset > r->bytes || bytes_of(&b->is) > r->bytes - b->offset)
      return rt_fail(e, "plan", "plan: buffer %u does not fit its region", i);
  }
  for (uint32_t i = 0; i < p->buffer_count; i++)
    if (!is_part(p, &p->buffers[i]))
      return rt_fail(e, "plan", "plan: buffer %u is no part of its input or output", i);
  return 1;
}

/* How many elements a parameter of a kind has; 0 where there is no such one. */
static uint64_t parameter_bytes(const rt_kernel *k, rt_role role, uint64_t index) {
  for (uint32_t i = 0; i < k->parameter_count; i++) {
    const rt_parameter *q = &k->parameters[i];
    if (q->role == role && index-- == 0) return q->count * rt_size_of(q->type);
  }
  return 0;
}

static int map_fits(const rt_kernel *k, const rt_map *m) {
  if (m->rank < 1 || m->rank > RT_RANK) return 0;
  if (m->memory == 'd' && m->at >= k->data_count) return 0;
  uint64_t room = m->memory == 'd'   ? parameter_bytes(k, RT_DATA, m->at)
                  : m->memory == 'p' ? k->prepared
                                     : k->workspace;
  uint64_t start = m->memory == 'd' ? 0 : m->at;
  if (start % 16 || start > room) return 0;
  room -= start;
  for (uint32_t i = 0; i < m->rank; i++) {
    if (!m->extents[i] || !m->spanned[i] || !m->steps[i]) return 0;
    /* Of the last element of each dimension: bytes from its first. */
    uint64_t stride = i ? m->strides[i - 1] : 2, last = m->extents[i] - 1;
    if (i && stride % 16) return 0;
    if (last && stride > room / last) return 0;
    room -= stride * last;
  }
  return room >= 2;
}

static int launch_fits(const rt_kernel *k, const rt_launch *l) {
  uint64_t blocks = 1;
  for (int i = 0; i < 3; i++) {
    if (!l->blocks[i] || !l->threads[i] || l->threads[i] > 1024) return 0;
    if (l->blocks[i] > (uint64_t)INT64_MAX / blocks) return 0;
    blocks *= l->blocks[i];
  }
  if ((uint64_t)l->threads[0] * l->threads[1] * l->threads[2] > 1024) return 0;
  if (!*l->entry || l->argument_count > RT_ARGUMENTS || l->map_count > RT_MAPS) return 0;
  for (uint32_t i = 0; i < l->argument_count; i++) {
    const rt_argument *a = &l->arguments[i];
    int here = a->kind == 'd'   ? !l->prepare && a->index < k->data_count
               : a->kind == 'w' ? l->prepare && a->index < k->weight_count
               : a->kind == 'o' ? !l->prepare && a->index < k->output_count
               : a->kind == 'm' ? a->index < l->map_count
               : a->kind == 'e' ? !l->prepare
                                : 1;
    if (a->kind == 'r')
      here = !l->prepare && a->index < k->output_count && a->from < k->data_count &&
             rt_restored_bytes(k, a) <= parameter_bytes(k, RT_DATA, a->from);
    if (!here) return 0;
  }
  for (uint32_t i = 0; i < l->map_count; i++) {
    if (l->prepare && l->maps[i].memory == 'd') return 0;
    if (!map_fits(k, &l->maps[i])) return 0;
  }
  return 1;
}

uint64_t rt_restored_bytes(const rt_kernel *k, const rt_argument *a) {
  return parameter_bytes(k, RT_OUTPUT, a->index);
}

static int is_identifier(const char *text) {
  if (!*text || (*text >= '0' && *text <= '9')) return 0;
  for (; *text; text++)
    if (!(*text == '_' || (*text >= '0' && *text <= '9') || (*text >= 'A' && *text <= 'Z') ||
          (*text >= 'a' && *text <= 'z')))
      return 0;
  return 1;
}

static int kernels_fit(const rt_plan *p, rt_error *e) {
  for (uint32_t i = 0; i < p->kernel_count; i++) {
    const rt_kernel *k = &p->kernels[i];
    if (!is_identifier(k->symbol))
      return rt_fail(e, "plan", "plan: the symbol of kernel %u is no name in C", i);
    if (k->parameter_count > RT_PARAMETERS || !k->output_count)
      return rt_fail(e, "plan", "plan: `%.40s` has %u parameters, %u outputs of them", k->symbol,
                     k->parameter_count, k->output_count);
    if (k->launch_count && !k->cuda)
      return rt_fail(e, "plan", "plan: `%.40s` is C and has launches", k->symbol);
    if (k->cuda && k->library && !k->launch_count)
      return rt_fail(e, "plan", "plan: `%.40s` has no launch", k->symbol);
    for (uint32_t n = 0; n < k->launch_count; n++)
      if (!launch_fits(k, &k->launches[n]))
        return rt_fail(e, "plan", "plan: launch %u of `%.40s` does not fit it", n, k->symbol);
  }
  return 1;
}

/* Whether steps may write a buffer: inputs are the caller's, also in their parts. */
static int written(const rt_plan *p, const rt_buffer *b) {
  if (b->role == RT_SCRATCH) return b->of == RT_NONE || p->buffers[b->of].role == RT_OUTPUT;
  return b->role == RT_OUTPUT;
}

static int read_by_steps(rt_role r) {
  return r == RT_OUTPUT || r == RT_SCRATCH || r == RT_DATA || r == RT_CONSTANT;
}

/* Whether a buffer of its own kind has room for the bytes that a kernel wants. */
static int holds(const rt_plan *p, uint64_t number, rt_role role, uint64_t bytes) {
  if (number == RT_NONE) return bytes == 0;
  return number < p->buffer_count && p->buffers[number].role == role &&
         bytes_of(&p->buffers[number].is) >= bytes;
}

static int call_fits(const rt_plan *p, const rt_step *s) {
  const rt_kernel *k = &p->kernels[s->kernel];
  for (uint32_t i = 0; i < k->parameter_count; i++) {
    if (s->buffers[i] >= p->buffer_count) return 0;
    const rt_buffer *b = &p->buffers[s->buffers[i]];
    const rt_parameter *q = &k->parameters[i];
    int role = q->role == RT_DATA     ? read_by_steps(b->role)
               : q->role == RT_WEIGHT ? b->role == RT_WEIGHT || b->role == RT_CONSTANT
                                      : written(p, b);
    if (!role || b->is.type != q->type || b->is.count < q->count) return 0;
  }
  return holds(p, s->buffers[k->parameter_count], RT_PREPARED, k->prepared) &&
         holds(p, s->buffers[k->parameter_count + 1], RT_WORKSPACE, k->workspace);
}

/* Whether the elements that a copy touches on one side lie between 0 and the count. */
static int axes_fit(const rt_step *s, int source, uint64_t at, uint64_t count) {
  if (at >= count) return 0;
  uint64_t above = count - 1 - at, below = at;
  for (uint32_t i = 0; i < s->rank; i++) {
    int64_t stride = source ? s->axes[i].from : (int64_t)s->axes[i].to;
    uint64_t *room = stride < 0 ? &below : &above, last = s->axes[i].extent - 1;
    uint64_t size = stride < 0 ? (uint64_t)-stride : (uint64_t)stride;
    if (last && size > *room / last) return 0;
    *room -= size * last;
  }
  return 1;
}

/* Whether a copy reads what it writes, or converts between floats of 32 bits and of 16. */
static int converts(char from, char to) {
  char narrow = from == 'f' ? to : from, wide = from == 'f' ? from : to;
  return from == to || (wide == 'f' && (narrow == 'B' || narrow == 'h'));
}

static int move_fits(const rt_plan *p, const rt_step *s) {
  int fill = s->kind == RT_FILL;
  if (s->to >= p->buffer_count || (!fill && s->from >= p->buffer_count)) return 0;
  const rt_buffer *to = &p->buffers[s->to], *from = fill ? to : &p->buffers[s->from];
  if (!written(p, to)) return 0;
  int agree = from->is.type == to->is.type;
  if (s->kind == RT_COPY) agree = converts(from->is.type, to->is.type);
  if (!fill && (!read_by_steps(from->role) || !agree)) return 0;
  if (fill)
    return s->value_bytes == rt_size_of(to->is.type) && s->to_at <= to->is.count &&
           s->count <= to->is.count - s->to_at;
  if (s->kind == RT_COPY) {
    uint64_t all = 1;
    for (uint32_t i = 0; i < s->rank; i++) {
      if (!s->axes[i].extent || s->axes[i].extent > RT_MOST_BYTES / all) return 0;
      all *= s->axes[i].extent;
    }
    return s->rank >= 1 && axes_fit(s, 0, s->to_at, to->is.count) &&
           axes_fit(s, 1, s->from_at, from->is.count);
  }
  if (s->to_at > to->is.count || s->from_at > from->is.count) return 0;
  for (uint64_t i = 0; i < s->count; i++) {
    const uint64_t *r = s->runs + 3 * i;
    if (r[0] > to->is.count - s->to_at || r[2] > to->is.count - s->to_at - r[0]) return 0;
    if (r[1] > from->is.count - s->from_at || r[2] > from->is.count - s->from_at - r[1]) return 0;
  }
  return 1;
}

/* Whether the conditions of a step are booleans. */
static int conditions_fit(const rt_plan *p, const rt_step *s) {
  for (uint32_t i = 0; i < s->condition_count; i++) {
    if (s->conditions[2 * i] >= p->buffer_count) return 0;
    const rt_buffer *b = &p->buffers[s->conditions[2 * i]];
    if (!read_by_steps(b->role) || b->is.type != 'o' || !b->is.count) return 0;
  }
  return 1;
}

int rt_plan_verify(const rt_plan *p, rt_error *e) {
  if (!regions_fit(p, e) || !buffers_fit(p, e) || !kernels_fit(p, e)) return 0;
  for (uint32_t i = 0; i < p->step_count; i++) {
    const rt_step *s = &p->steps[i];
    if (!conditions_fit(p, s) || !(s->kind == RT_CALL ? call_fits(p, s) : move_fits(p, s)))
      return rt_fail(e, "plan", "plan: step %u (%.80s) does not fit its buffers", i, s->name);
  }
  return 1;
}
