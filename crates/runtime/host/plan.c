/* The reader of plans in C: parses a plan's text (docs/plan-format.md) into the types of plan.h.
 * It takes any bytes: a text that is no plan is refused with its line.
 * crates/runtime/src/plan/parse.rs reads the same. */
#include "plan.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_TEXT = 1 << 28 };

/* The rest of a line, from whose front words are taken. */
typedef struct {
  char *at; /* NULL behind the last word */
  const char *wrong;
  int line;
} cursor;

static char *word(cursor *c) {
  if (!c->at || !*c->at || *c->at == ' ') {
    if (!c->wrong) c->wrong = "a word is missing";
    return (char *)(uintptr_t) "";
  }
  char *start = c->at, *end = strchr(start, ' ');
  if (end) *end++ = 0;
  c->at = end;
  for (const char *at = start; *at; at++)
    if (((unsigned char)*at < ' ' || *at == 127) && !c->wrong) c->wrong = "a word is not plain";
  return start;
}

static uint64_t digits(cursor *c, const char *text, uint64_t most) {
  uint64_t value = 0;
  if (!*text && !c->wrong) c->wrong = "a number is missing";
  for (; *text; text++) {
    unsigned digit = (unsigned)(unsigned char)*text - '0';
    if (digit > 9 || value > (most - digit) / 10 || digit > most) {
      if (!c->wrong) c->wrong = digit > 9 ? "a number is none" : "a number is too large";
      return 0;
    }
    value = 10 * value + digit;
  }
  return value;
}

static uint64_t number(cursor *c, uint64_t most) { return digits(c, word(c), most); }

static int64_t signed_number(cursor *c) {
  const char *text = word(c);
  int64_t value = (int64_t)digits(c, text + (*text == '-'), RT_MOST_BYTES);
  return *text == '-' ? -value : value;
}

static double real(cursor *c) {
  const char *text = word(c);
  char *end = NULL;
  double value = strtod(text, &end);
  /* No hexadecimal ones, and none that are no numbers. */
  int plain = strspn(text, "0123456789+-.eE") == strlen(text);
  if ((end == text || *end || !plain) && !c->wrong) c->wrong = "a number is none";
  return value;
}

static int is(const char *a, const char *b) { return strcmp(a, b) == 0; }

static rt_role role(cursor *c) {
  static const char *const names[] = {"data",     "weight",   "output",   "scratch",
                                      "constant", "prepared", "workspace"};
  const char *text = word(c);
  for (int i = 0; i <= RT_WORKSPACE; i++)
    if (is(text, names[i])) return (rt_role)i;
  if (!c->wrong) c->wrong = "there is no such role";
  return RT_DATA;
}

static char type(cursor *c) {
  const char *text = word(c);
  if (!text[0] || text[1] || !strchr(RT_TYPES, *text)) {
    if (!c->wrong) c->wrong = "there is no such type";
    return 'f';
  }
  return *text;
}

/* Where the parts of a plan go while it is read. There is room for as many of each as the text has
 * lines or words that begin one. */
typedef struct {
  rt_plan *plan;
  rt_parameter *parameters;
  rt_launch *launches;
  rt_map *maps;
  rt_argument *arguments;
  rt_axis *axes;
  uint64_t *numbers;
  int stage; /* regions, buffers, kernels, steps follow one another */
} builder;

static void read_region(cursor *c, builder *b) {
  rt_region *r = &b->plan->regions[b->plan->region_count++];
  r->role = role(c);
  r->bytes = number(c, RT_MOST_BYTES);
  r->file = NULL;
  r->at = 0;
  if (!c->at) return;
  r->file = word(c);
  r->at = number(c, RT_MOST_BYTES);
}

static void read_buffer(cursor *c, builder *b) {
  rt_buffer *u = &b->plan->buffers[b->plan->buffer_count++];
  u->role = role(c);
  u->is.type = type(c);
  u->is.count = number(c, RT_MOST_BYTES / rt_size_of(u->is.type));
  u->region = u->of = RT_NONE;
  const char *place = word(c);
  if (is(place, "in")) {
    u->region = (uint32_t)number(c, RT_NONE - 1);
    u->offset = number(c, RT_MOST_BYTES);
  } else if (!is(place, "own") && !c->wrong) {
    c->wrong = "a buffer is `own` or lies `in` a region";
  }
  while (c->at && !c->wrong) {
    const char *what = word(c);
    if (is(what, "range")) {
      u->is.bounded = 1;
      u->is.low = real(c);
      u->is.high = real(c);
    } else if (is(what, "file")) {
      u->is.file = word(c);
    } else if (is(what, "hard")) {
      const char *which = word(c);
      u->is.hard = is(which, "all") ? 2 : is(which, "nan");
      if (!u->is.hard && !c->wrong) c->wrong = "hard values are `nan` or `all`";
    } else if (is(what, "gaps")) {
      u->is.gaps = 1;
    } else if (is(what, "grown")) {
      u->is.grown = 1;
    } else if (is(what, "of")) {
      u->of = (uint32_t)number(c, RT_NONE - 1);
    } else if (is(what, "values")) {
      u->values = (const int64_t *)b->numbers;
      do {
        *b->numbers++ = (uint64_t)signed_number(c);
        u->value_count++;
      } while (c->at && !c->wrong);
    } else if (!c->wrong) {
      c->wrong = "expected `range`, `hard`, `file`, `gaps`, `grown`, `of` or `values`";
    }
  }
}

static void read_kernel(cursor *c, builder *b) {
  rt_kernel *k = &b->plan->kernels[b->plan->kernel_count++];
  const char *language = word(c);
  k->cuda = is(language, "cuda");
  if (!k->cuda && !is(language, "c") && !c->wrong) c->wrong = "there is no such language";
  k->symbol = word(c);
  k->library = word(c);
  if (is(k->library, "-")) k->library = NULL;
  k->prepared = number(c, RT_MOST_BYTES);
  k->workspace = number(c, RT_MOST_BYTES);
  k->parameters = b->parameters;
  k->launches = b->launches;
}

static void read_numbers(cursor *c, builder *b) {
  if (!b->plan->kernel_count) {
    c->wrong = "numbers stand before the first kernel";
    return;
  }
  rt_kernel *k = &b->plan->kernels[b->plan->kernel_count - 1];
  if (k->number_count && !c->wrong) c->wrong = "a kernel has one line of numbers";
  k->numbers = b->numbers;
  do {
    *b->numbers++ = number(c, RT_MOST_BYTES);
    k->number_count++;
  } while (c->at && !c->wrong);
}

static void read_parameter(cursor *c, builder *b) {
  if (!b->plan->kernel_count) {
    c->wrong = "a parameter stands before the first kernel";
    return;
  }
  rt_kernel *k = &b->plan->kernels[b->plan->kernel_count - 1];
  rt_parameter *p = b->parameters++;
  k->parameter_count++;
  p->role = role(c);
  p->type = type(c);
  p->count = number(c, RT_MOST_BYTES / rt_size_of(p->type));
  if (p->role == RT_DATA) k->data_count++;
  else if (p->role == RT_WEIGHT) k->weight_count++;
  else if (p->role == RT_OUTPUT) k->output_count++;
  else if (!c->wrong) c->wrong = "a parameter is data, weight or output";
}

/* The bytes behind an `x`: how many there are, 0 where the digits are none. */
static uint64_t hex_bytes(const char *text, unsigned char to[8]) {
  static const char hex[] = "0123456789abcdef";
  size_t length = strlen(text);
  if (length < 2 || length > 16 || length % 2) return 0;
  for (size_t i = 0; i < length; i++) {
    const char *digit = strchr(hex, text[i]);
    if (!digit) return 0;
    to[i / 2] = (unsigned char)(to[i / 2] * 16 + (digit - hex));
  }
  return length / 2;
}

static void read_argument(cursor *c, rt_argument *a) {
  char *text = word(c), *comma;
  memset(a, 0, sizeof *a);
  a->kind = *text;
  if (!*text) return;
  text++;
  switch (a->kind) {
  case 'p':
  case 's':
  case 'e':
    if (*text && !c->wrong) c->wrong = "an argument is none";
    return;
  case 'd':
  case 'w':
  case 'o':
  case 'm': a->index = (uint32_t)digits(c, text, RT_PARAMETERS); return;
  case 'r':
    comma = strchr(text, ',');
    if (comma) *comma++ = 0;
    a->index = (uint32_t)digits(c, text, RT_PARAMETERS);
    a->from = (uint32_t)digits(c, comma ? comma : "", RT_PARAMETERS);
    return;
  case 'x':
    a->bytes = hex_bytes(text, a->value);
    if (a->bytes) return;
    break;
  default: break;
  }
  if (!c->wrong) c->wrong = "an argument is none";
}

static void read_launch(cursor *c, builder *b) {
  if (!b->plan->kernel_count) {
    c->wrong = "a launch stands before the first kernel";
    return;
  }
  rt_kernel *k = &b->plan->kernels[b->plan->kernel_count - 1];
  rt_launch *l = b->launches++;
  k->launch_count++;
  const char *phase = word(c);
  l->prepare = is(phase, "prepare");
  if (!l->prepare && !is(phase, "call") && !c->wrong) c->wrong = "there is no such phase";
  l->entry = word(c);
  for (int i = 0; i < 6; i++)
    (i < 3 ? l->blocks : l->threads)[i % 3] = (uint32_t)number(c, INT32_MAX);
  l->shared = (uint32_t)number(c, INT32_MAX);
  l->arguments = b->arguments;
  l->maps = b->maps;
  while (c->at && !c->wrong) {
    read_argument(c, b->arguments++);
    l->argument_count++;
  }
}

static void read_map(cursor *c, builder *b) {
  rt_kernel *k = b->plan->kernel_count ? &b->plan->kernels[b->plan->kernel_count - 1] : NULL;
  if (!k || !k->launch_count) {
    c->wrong = "a tensor map stands before the first launch";
    return;
  }
  rt_launch *l = &b->launches[-1];
  rt_map *m = b->maps++;
  l->map_count++;
  const char *memory = word(c);
  m->memory = is(memory, "data") ? 'd' : is(memory, "prepared") ? 'p' : 's';
  if (m->memory == 's' && !is(memory, "workspace") && !c->wrong)
    c->wrong = "a tensor map is of data, prepared or workspace";
  m->at = number(c, RT_MOST_BYTES);
  m->rank = (uint32_t)number(c, RT_RANK);
  for (uint32_t i = 0; i < m->rank; i++) m->extents[i] = number(c, UINT32_MAX);
  for (uint32_t i = 0; i + 1 < m->rank; i++) m->strides[i] = number(c, RT_MOST_BYTES);
  for (uint32_t i = 0; i < m->rank; i++) m->spanned[i] = (uint32_t)number(c, 256);
  for (uint32_t i = 0; i < m->rank; i++) m->steps[i] = (uint32_t)number(c, 8);
}

/* A buffer's number; `-` is none. */
static uint64_t buffer_number(cursor *c) {
  char *text = word(c);
  return is(text, "-") ? RT_NONE : digits(c, text, RT_NONE - 1);
}

static rt_step *begin_step(builder *b, rt_step_kind kind) {
  rt_step *s = &b->plan->steps[b->plan->step_count++];
  s->kind = kind;
  s->name = "";
  return s;
}

/* The rest of the line is the name. */
static void end_step(cursor *c, rt_step *s) {
  s->name = c->at ? c->at : "";
  c->at = NULL;
}

static void read_call(cursor *c, builder *b) {
  rt_step *s = begin_step(b, RT_CALL);
  s->kernel = (uint32_t)number(c, RT_NONE - 1);
  if (s->kernel >= b->plan->kernel_count) {
    if (!c->wrong) c->wrong = "there is no such kernel";
    return;
  }
  s->buffers = b->numbers;
  uint32_t count = b->plan->kernels[s->kernel].parameter_count + 2;
  for (uint32_t i = 0; i < count && !c->wrong; i++) *b->numbers++ = buffer_number(c);
  end_step(c, s);
}

static void read_ends(cursor *c, rt_step *s) {
  if (s->kind != RT_FILL) s->from = (uint32_t)number(c, RT_NONE - 1);
  if (s->kind != RT_FILL) s->from_at = number(c, RT_MOST_BYTES);
  s->to = (uint32_t)number(c, RT_NONE - 1);
  s->to_at = number(c, RT_MOST_BYTES);
}

static void read_copy(cursor *c, builder *b) {
  rt_step *s = begin_step(b, RT_COPY);
  read_ends(c, s);
  s->rank = (uint32_t)number(c, RT_AXES);
  s->axes = b->axes;
  for (uint32_t i = 0; i < s->rank && !c->wrong; i++, b->axes++) {
    b->axes->extent = number(c, RT_MOST_BYTES);
    b->axes->to = number(c, RT_MOST_BYTES);
    b->axes->from = signed_number(c);
  }
  end_step(c, s);
}

static void read_runs(cursor *c, builder *b) {
  rt_step *s = begin_step(b, RT_RUNS);
  read_ends(c, s);
  s->count = number(c, RT_MOST_BYTES);
  s->runs = b->numbers;
  for (uint64_t i = 0; i < 3 * s->count && !c->wrong; i++) *b->numbers++ = number(c, RT_MOST_BYTES);
  end_step(c, s);
}

static void read_fill(cursor *c, builder *b) {
  rt_step *s = begin_step(b, RT_FILL);
  read_ends(c, s);
  s->count = number(c, RT_MOST_BYTES);
  const char *text = word(c);
  s->value_bytes = *text == 'x' ? (uint32_t)hex_bytes(text + 1, s->value) : 0;
  if (!s->value_bytes && !c->wrong) c->wrong = "a number is none";
  end_step(c, s);
}

/* Of the step above. */
static void read_when(cursor *c, builder *b) {
  if (!b->plan->step_count) {
    c->wrong = "a condition stands before the first step";
    return;
  }
  rt_step *s = &b->plan->steps[b->plan->step_count - 1];
  if (!s->condition_count++) s->conditions = b->numbers;
  *b->numbers++ = number(c, RT_NONE - 1);
  *b->numbers++ = number(c, 1);
}

static void read_line(cursor *c, builder *b) {
  static const struct {
    const char *name;
    int stage;
    void (*read)(cursor *, builder *);
  } entries[] = {{"region", 0, read_region}, {"buffer", 1, read_buffer},
                 {"kernel", 2, read_kernel}, {"numbers", 2, read_numbers},
                 {"parameter", 2, read_parameter},
                 {"launch", 2, read_launch}, {"map", 2, read_map},
                 {"call", 3, read_call},     {"copy", 3, read_copy},
                 {"runs", 3, read_runs},     {"fill", 3, read_fill},
                 {"when", 3, read_when}};
  const char *first = word(c);
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    if (!is(first, entries[i].name)) continue;
    if (entries[i].stage < b->stage) {
      c->wrong = "regions, buffers, kernels and steps follow one another";
      return;
    }
    b->stage = entries[i].stage;
    entries[i].read(c, b);
    if (c->at && !c->wrong) c->wrong = "the line is too long";
    return;
  }
  if (!c->wrong) c->wrong = "there is no such entry";
}

/* One piece of a plan's memory, aligned for all that lies there. */
static void *piece(unsigned char **at, size_t count, size_t size) {
  void *here = *at;
  *at += (count * size + 15) / 16 * 16;
  return here;
}

/* Takes memory for the text and for as many parts as it can have. */
static int reserve(const char *text, size_t length, builder *b, char **copy) {
  size_t words = 1;
  for (size_t i = 0; i < length; i++) words += text[i] == ' ' || text[i] == '\n';
  /* By what a line begins with: most lines of a large plan are of one kind. */
  size_t of[6] = {1, 1, 1, 1, 1, 1};
  for (size_t i = 0; i < length; i++) {
    if (i > 0 && text[i - 1] != '\n') continue;
    switch (text[i]) {
    case 'r': of[0]++, of[5]++; break;
    case 'b': of[1]++; break;
    case 'k': of[2]++; break;
    case 'p': of[3]++; break;
    case 'l': of[4]++; break;
    default: of[5]++; break;
    }
  }
  static const size_t sizes[] = {sizeof(rt_region),    sizeof(rt_buffer), sizeof(rt_kernel),
                                 sizeof(rt_parameter), sizeof(rt_launch), sizeof(rt_step)};
  size_t total = length + 64 + (words + 1) * (sizeof(uint64_t) + sizeof(rt_argument)) +
                 (words / 3 + 2) * sizeof(rt_axis) + of[5] * sizeof(rt_map);
  for (int i = 0; i < 6; i++) total += of[i] * sizes[i] + 16;
  unsigned char *at = b->plan->memory = calloc(1, total + 256);
  if (!at) return 0;
  b->plan->regions = piece(&at, of[0], sizes[0]);
  b->plan->buffers = piece(&at, of[1], sizes[1]);
  b->plan->kernels = piece(&at, of[2], sizes[2]);
  b->parameters = piece(&at, of[3], sizes[3]);
  b->launches = piece(&at, of[4], sizes[4]);
  b->plan->steps = piece(&at, of[5], sizes[5]);
  b->maps = piece(&at, of[5], sizeof(rt_map));
  b->arguments = piece(&at, words + 1, sizeof(rt_argument));
  b->axes = piece(&at, words / 3 + 2, sizeof(rt_axis));
  b->numbers = piece(&at, words + 1, sizeof(uint64_t));
  *copy = piece(&at, length + 1, 1);
  memcpy(*copy, text, length);
  return 1;
}

static int refuse(rt_plan *plan, rt_error *e, const cursor *c) {
  rt_plan_close(plan);
  return rt_fail(e, "plan", "plan: line %d: %s", c->line, c->wrong);
}

int rt_plan_read(const char *text, size_t length, rt_plan *plan, rt_error *e) {
  static const char head[] = "squall plan ";
  memset(plan, 0, sizeof *plan);
  if (length > LONGEST_TEXT) return rt_fail(e, "plan", "the plan is too long");
  if (length < sizeof head || memcmp(text, head, sizeof head - 1) != 0)
    return rt_fail(e, "plan", "it is no plan of Squall's");
  if (memchr(text, 0, length)) return rt_fail(e, "plan", "the plan holds a byte 0");
  builder b = {.plan = plan};
  char *line;
  if (!reserve(text, length, &b, &line)) return rt_fail(e, "memory", "no memory for the plan");
  cursor c = {.line = 1};
  for (char *next; line && *line; line = next, c.line++) {
    next = strchr(line, '\n');
    if (next) *next++ = 0;
    c.at = line;
    if (c.line > 1) {
      read_line(&c, &b);
    } else {
      word(&c), word(&c);
      if (number(&c, UINT32_MAX) != RT_PLAN_VERSION || c.at)
        c.wrong = "the plan is of another version; this is version 2";
    }
    if (c.wrong) return refuse(plan, e, &c);
  }
  if (rt_plan_verify(plan, e)) return 1;
  rt_plan_close(plan);
  return 0;
}

int rt_plan_open(const char *path, rt_plan *plan, rt_error *e) {
  FILE *f = fopen(path, "rb");
  char *text = NULL;
  long length = 0;
  memset(plan, 0, sizeof *plan);
  if (!f) return rt_fail(e, "file", "%s: %s", path, strerror(errno));
  int fine = fseek(f, 0, SEEK_END) == 0 && (length = ftell(f)) >= 0 && length <= LONGEST_TEXT;
  if (fine) rewind(f);
  fine = fine && (text = malloc((size_t)length + 1)) &&
         fread(text, 1, (size_t)length, f) == (size_t)length;
  fclose(f);
  fine = fine ? rt_plan_read(text, (size_t)length, plan, e)
              : rt_fail(e, "file", "%s cannot be read", path);
  free(text);
  return fine;
}

void rt_plan_close(rt_plan *plan) {
  free(plan->memory);
  memset(plan, 0, sizeof *plan);
}
