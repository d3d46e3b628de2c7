/* A session: sets a task (makes inputs, computes the reference's outputs) and checks kernels
 * against it on poisoned outputs. Also the CPU back end, which loads and times kernels in C;
 * cuda.c is the GPU's. session.h has the interface; timing.c times. */
#define _GNU_SOURCE
#include "session.h"
#include "pool.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the CPU ---- */

static int cpu_load(rt_session *s, int which) {
  rt_contender *c = &s->kernels[which];
  rt_host *h = s->host;
  rt_guarded *p = &c->prepared, *w = &c->workspace;
  const rt_kernel *k = c->kernel;
  if (!rt_load(h, k, &c->loaded)) return 0;
  if (!rt_place(&h->guards, p, "the prepared weights", -1, k->prepared, &h->error)) return 0;
  if (!rt_place(&h->guards, w, "the workspace", -1, k->workspace, &h->error)) return 0;
  rt_fill_slack(&h->guards, p, RT_CANARY);
  rt_fill_slack(&h->guards, w, RT_CANARY);
  if (k->prepared > 0) {
    memset(p->at, RT_NOTHING_WRITTEN, p->size);
    if (!rt_prepare(h, k, &c->loaded, s->weight_pointers, p->at)) return 0;
    if (!rt_untouched(&h->guards, p, &h->error)) return 0;
  }
  rt_read_only(&h->guards, p);
  return 1;
}

static void cpu_unload(rt_session *s, int which) {
  rt_unload(s->host, &s->kernels[which].loaded);
}

static int cpu_poison(rt_session *s, int which, int byte) {
  rt_guarded *w = &s->kernels[which].workspace;
  (void)byte; /* the session has filled the outputs */
  memset(w->at, RT_NOTHING_WRITTEN, w->size);
  return 1;
}

static int cpu_fetch(rt_session *s, int which) {
  (void)s, (void)which; /* the outputs lie on the host */
  return 1;
}

static int cpu_intact(rt_session *s, int which) {
  return rt_untouched(&s->host->guards, &s->kernels[which].workspace, &s->host->error);
}

/* One thread's share of all buffers of the second input set, one part of the memory of each: by
 * writing to its lines the thread has them in its cache, and no other has. */
static void take_share(void *session, size_t thread) {
  const rt_session *s = session;
  for (uint32_t i = 0; i < s->data_count + s->output_count; i++) {
    const rt_guarded *b = i < s->data_count ? &s->data[1][i] : &s->outputs[i - s->data_count].at;
    size_t end = b->size * (thread + 1) / s->threads;
    volatile unsigned char *at = b->at;
    for (size_t k = b->size * thread / s->threads; k < end; k += 64) at[k] = at[k];
  }
}

/* The calls of several threads in a network, where a kernel finds its data in the caches of those
 * that wrote it: no kernel shares its work as all others do, but all can share it by memory, so
 * that the data of one lie where the next one looks for them. Calls in a row would hide that: each
 * thread then finds what it read before. The time of all calls. */
static double shared_calls(rt_session *s, int which, long calls, const rt_pool *pool, int *code) {
  const rt_contender *c = &s->kernels[which];
  double all = 0;
  for (uint32_t d = 0; d < s->data_count; d++) rt_writable(&s->host->guards, &s->data[1][d]);
  for (long i = 0; i < calls; i++) {
    pool->parallel_for(pool->state, pool->tasks, take_share, s);
    double t = rt_now(s->host);
    *code |= c->loaded.run(s->data_pointers[1], s->output_pointers, c->prepared.at,
                           c->workspace.at);
    all += rt_now(s->host) - t;
  }
  for (uint32_t d = 0; d < s->data_count; d++) rt_read_only(&s->host->guards, &s->data[1][d]);
  return all;
}

static double cpu_window(rt_session *s, int which, int set, long calls) {
  const rt_contender *c = &s->kernels[which];
  rt_run_function *run = c->loaded.run;
  const void *const *data = s->data_pointers[set];
  const void *p = c->prepared.at;
  void *w = c->workspace.at;
  rt_pool pool;
  int code = 0;
  double t;
  s->host->phase = "the kernel";
  /* Inputs of the first set stay read-only: a kernel that writes to them ends there. */
  if (set == 1 && rt_pool_of(s->threads, &pool)) {
    t = shared_calls(s, which, calls, &pool, &code);
  } else {
    t = rt_now(s->host);
    for (long i = 0; i < calls; i++) code |= run(data, s->output_pointers, p, w);
    t = rt_now(s->host) - t;
  }
  rt_idle(s->host);
  if (code == 0) return t / (double)calls;
  rt_fail(&s->host->error, "launch", "returned %d", code);
  return -1;
}

static int cpu_flush(rt_session *s, size_t bytes) {
  if (bytes > s->flush_bytes) {
    unsigned char *m = realloc(s->flush_memory, bytes);
    if (!m) return 1;
    s->flush_memory = m;
    memset(m, 1, bytes); /* pages of their own */
    s->flush_bytes = bytes;
  }
  volatile unsigned char sum = 0;
  for (size_t i = 0; i < bytes; i += 64) sum += s->flush_memory[i];
  /* What the layer before has just written is near. */
  for (uint32_t d = 0; d < s->data_count; d++)
    for (size_t i = 0; i < s->data[1][d].size; i += 64) sum += s->data[1][d].at[i];
  return 1;
}

const rt_backend rt_cpu = {cpu_load,   cpu_unload, cpu_poison, cpu_fetch, cpu_intact,
                           cpu_window, cpu_flush,  20000000,   0};

/* ---- kernels ---- */

void rt_unload_kernel(rt_session *s, int which) {
  rt_contender *c = &s->kernels[which];
  if (c->on) c->on->unload(s, which);
  c->on = NULL;
  c->kernel = NULL;
  c->calls = 0;
  c->time = c->error = 0;
  rt_plan_close(&c->plan);
}

/* Whether a kernel takes what the task has. */
static int fits_task(const rt_session *s, const rt_kernel *k) {
  uint32_t d = 0, w = 0, o = 0;
  if (k->data_count != s->data_count || k->weight_count != s->weight_count) return 0;
  if (k->output_count != s->output_count) return 0;
  for (uint32_t i = 0; i < k->parameter_count; i++) {
    const rt_parameter *p = &k->parameters[i];
    const rt_guarded *b = p->role == RT_DATA     ? &s->data[0][d++]
                          : p->role == RT_WEIGHT ? &s->weights[w++]
                                                 : &s->outputs[o++].at;
    if (p->count * rt_size_of(p->type) != b->size) return 0;
    if (p->role == RT_OUTPUT && s->outputs[o - 1].type != p->type) return 0;
  }
  return 1;
}

int rt_load_kernel(rt_session *s, int which, rt_plan *plan) {
  rt_contender *c = &s->kernels[which];
  rt_unload_kernel(s, which);
  c->plan = *plan;
  memset(plan, 0, sizeof *plan);
  if (c->plan.kernel_count != 1)
    return rt_fail(&s->host->error, "launch", "the plan has %u kernels, not one",
                   c->plan.kernel_count);
  const rt_kernel *k = c->kernel = &c->plan.kernels[0];
  if (!fits_task(s, k)) return rt_fail(&s->host->error, "launch", "does not fit the task");
  if (k->cuda && !s->gpu) return rt_fail(&s->host->error, "launch", "no GPU was opened");
  c->on = k->cuda ? s->gpu : &rt_cpu;
  return c->on->load(s, which);
}

/* Results that come of large values among the inputs are no measure for others. */
#define RT_LARGE 1e12

static void clear_outputs(rt_session *s, int byte) {
  for (uint32_t o = 0; o < s->output_count; o++)
    memset(s->outputs[o].at.at, byte, s->outputs[o].at.size);
}

/* Fetches what a kernel wrote and looks for writes beside its buffers. */
static int fetched(rt_session *s, int which) {
  if (!s->kernels[which].on->fetch(s, which)) return 0;
  for (uint32_t o = 0; o < s->output_count; o++)
    if (!rt_untouched(&s->host->guards, &s->outputs[o].at, &s->host->error)) return 0;
  return s->kernels[which].on->intact(s, which);
}

/* Compares an output with the reference. */
static int right_in(rt_session *s, int which, int set, uint32_t o, double tolerance) {
  const rt_result *r = &s->outputs[o];
  const unsigned char *got = r->at.at, *want = r->expected[set].at;
  char type = r->type, name[40] = "output";
  size_t each = rt_size_of(type), n = r->at.size / each, wrong = 0, first = 0;
  double largest = r->largest[set], worst = 0, place = rt_last_place(type);
  /* A judge has looked at these results. */
  if (isinf(tolerance)) return 1;
  /* What rounding explains in one output excuses no wrong count in another. */
  if (s->mixed && rt_is_whole(type)) tolerance = 0;
  for (size_t i = 0; i < n; i++) {
    if (r->gaps && rt_all_bytes(want + i * each, each, RT_NOTHING_WRITTEN) &&
        rt_all_bytes(got + i * each, each, s->poison))
      continue;
    double d = rt_apart(got, want, type, i), allowed = tolerance * largest;
    double size = fabs(rt_element(want, type, i));
    if (place > 0) allowed += place * size;
    if (size > RT_LARGE && isfinite(size)) allowed += tolerance * size;
    if (d <= allowed) {
      if (d > worst && size <= RT_LARGE) worst = d;
    } else if (!rt_same(rt_element(got, type, i), rt_element(want, type, i))) {
      if (wrong++ == 0) first = i;
    }
  }
  double error = worst / largest;
  if (error > s->kernels[which].error) s->kernels[which].error = error;
  if (wrong == 0) return 1;
  if (s->output_count > 1) snprintf(name, sizeof name, "output %u", o);
  int unwritten = rt_all_bytes(got + first * each, each, s->poison);
  return rt_fail(&s->host->error, "wrong",
                 "%s[%zu] is %.7g%s, expected %.7g; %zu of %zu elements differ by more than %.2g "
                 "of the largest value %.4g%s",
                 name, first, rt_element(got, type, first), unwritten ? " (never written)" : "",
                 rt_element(want, type, first), wrong, n, tolerance, largest,
                 set == 1 ? "; the first input set was right: does it keep results between calls?"
                          : "");
}

int rt_right(rt_session *s, int which, int set, double tolerance) {
  if (!fetched(s, which)) return 0;
  for (uint32_t o = 0; o < s->output_count; o++)
    if (!right_in(s, which, set, o, tolerance)) return 0;
  return 1;
}

/* A window of kernels that take `t` ns lasts a millisecond, or one call. */
static long calls_of_a_window(const rt_backend *on, double t) {
  long calls = t >= 1e6 ? 1 : t > 0.05 ? (long)(1e6 / t) + 1 : 20000000;
  return calls > on->most_calls ? on->most_calls : calls;
}

/* Calls of 0.1 s and more are not repeated for an estimate, nor is one of a kernel of which no time
 * is asked. */
int rt_examine(rt_session *s, int which, double tolerance, int is_timed) {
  rt_contender *k = &s->kernels[which];
  clear_outputs(s, s->poison);
  if (!k->on->poison(s, which, s->poison)) return 0;
  double t = k->on->window(s, which, 0, 1);
  if (t < 0 || !rt_right(s, which, 0, tolerance)) return 0;
  if (!is_timed) {
    k->time = t;
    k->calls = 1;
    return 1;
  }
  if (k->on->warm_calls) {
    t = k->on->window(s, which, 1, t < 1e6 ? k->on->warm_calls : 1);
    if (t < 0) return 0;
  } else if (t < 1e8) {
    const double first = t;
    long n = 1;
    for (;;) {
      t = k->on->window(s, which, 1, n);
      if (t < 0) return 0;
      /* Where another process had its turn meanwhile, a window says nothing of the kernel. One call
       * was timed before; several take so little that they are timed again. */
      if (t * (double)n > 5e4) {
        double other = n > 1 ? k->on->window(s, which, 1, n) : first;
        if (other < 0) return 0;
        t = other < t ? other : t;
      }
      if (t * (double)n > 5e4 || n > 1L << 24) break;
      n *= t * (double)n < 5e3 ? 8 : 2;
    }
  }
  k->time = t;
  k->calls = calls_of_a_window(k->on, t);
  return 1;
}

/* ---- tasks ---- */

static int transfer(int fd, int writing, rt_guarded *b) {
  for (size_t i = 0; i < b->size;) {
    ssize_t n = writing ? write(fd, b->at + i, b->size - i) : read(fd, b->at + i, b->size - i);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    i += (size_t)n;
  }
  return 1;
}

/* Writes what is expected of the outputs to a file, or reads it from there. */
static int keep(rt_session *s, const char *path, int writing) {
  char name[600];
  snprintf(name, sizeof name, "%s%s", path, writing ? ".part" : "");
  int fd = writing ? open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600) : open(name, O_RDONLY);
  errno = fd < 0 ? errno : 0;
  int good = fd >= 0;
  for (int set = 0; set < 2; set++)
    for (uint32_t o = 0; o < s->output_count; o++)
      good = good && transfer(fd, writing, &s->outputs[o].expected[set]);
  int why = errno;
  if (fd >= 0 && close(fd) != 0) good = 0;
  if (good && writing) good = rename(name, path) == 0;
  if (good) return 1;
  return rt_fail(&s->host->error, "file", "%s: %s", name, why ? strerror(why) : "it is too short");
}

/* Uniform, in the first set with hard values among them, or read from a file; what lies beside it
 * is NaN, so that reading it shows. Then read-only. */
static int make_input(rt_session *s, rt_guarded *b, const char *name, int number,
                      const rt_tensor *t, uint64_t seed, int hard) {
  rt_host *h = s->host;
  if (!rt_place(&h->guards, b, name, number, t->count * rt_size_of(t->type), &h->error)) return 0;
  rt_fill_slack(&h->guards, b, RT_NOTHING_WRITTEN);
  if (t->file) {
    char more;
    int fd = open(t->file, O_RDONLY), good = fd >= 0 && transfer(fd, 0, b);
    int longer = good && read(fd, &more, 1) > 0;
    if (fd >= 0) close(fd);
    if (!good) return rt_fail(&h->error, "file", "%s cannot be read", t->file);
    if (longer) return rt_fail(&h->error, "file", "%s is longer than the input", t->file);
  } else {
    rt_fill(b->at, t, &seed);
    if (hard) rt_harden(b->at, t, &seed);
  }
  rt_read_only(&h->guards, b);
  return 1;
}

static int make_inputs(rt_session *s, const rt_plan *plan, uint64_t seed) {
  uint64_t i = 0;
  s->data_count = s->weight_count = 0;
  for (uint32_t n = 0; n < plan->buffer_count; n++) {
    const rt_buffer *b = &plan->buffers[n];
    if (b->role != RT_DATA && b->role != RT_WEIGHT) continue;
    uint64_t own = seed ^ (0xD1B54A32D192ED03u * ++i);
    if (b->role == RT_DATA) {
      uint32_t d = s->data_count++;
      for (uint64_t set = 0; set < 2; set++) {
        if (!make_input(s, &s->data[set][d], "data input", (int)d, &b->is,
                        own + set * 0x8CB92BA72F3D8DD7u, set == 0))
          return 0;
        s->data_pointers[set][d] = s->data[set][d].at;
      }
    } else {
      uint32_t w = s->weight_count++;
      if (!make_input(s, &s->weights[w], "weight input", (int)w, &b->is, own, 0)) return 0;
      s->weight_pointers[w] = s->weights[w].at;
    }
  }
  return 1;
}

static int make_outputs(rt_session *s, const rt_plan *plan) {
  rt_host *h = s->host;
  uint32_t whole = 0;
  s->output_count = 0;
  for (uint32_t n = 0; n < plan->buffer_count; n++) {
    const rt_buffer *b = &plan->buffers[n];
    if (b->role != RT_OUTPUT) continue;
    uint32_t o = s->output_count++;
    rt_result *r = &s->outputs[o];
    size_t bytes = b->is.count * rt_size_of(b->is.type);
    int number = o > 0 ? (int)o : -1;
    r->type = b->is.type;
    r->gaps = b->is.gaps && !rt_is_whole(r->type);
    whole += rt_is_whole(r->type);
    if (!rt_place(&h->guards, &r->at, "the output", number, bytes, &h->error)) return 0;
    for (int set = 0; set < 2; set++)
      if (!rt_place(&h->guards, &r->expected[set], "the reference output", 2 * (int)o + set, bytes,
                    &h->error))
        return 0;
    rt_fill_slack(&h->guards, &r->at, RT_CANARY);
    s->output_pointers[o] = r->at.at;
  }
  s->mixed = whole > 0 && whole < s->output_count;
  return 1;
}

/* Lets the reference compute what is expected; the seconds of a call. */
static int refer(rt_session *s, rt_plan *reference, double *seconds) {
  if (!rt_load_kernel(s, 0, reference)) return 0;
  const rt_backend *on = s->kernels[0].on;
  for (int set = 0; set < 2; set++) {
    clear_outputs(s, RT_NOTHING_WRITTEN);
    if (!on->poison(s, 0, RT_NOTHING_WRITTEN)) return 0;
    double t = on->window(s, 0, set, 1);
    if (t < 0 || !fetched(s, 0)) return 0;
    *seconds = t * 1e-9;
    for (uint32_t o = 0; o < s->output_count; o++) {
      rt_result *r = &s->outputs[o];
      memcpy(r->expected[set].at, r->at.at, r->at.size);
    }
  }
  rt_unload_kernel(s, 0);
  return 1;
}

/* Finds the largest values expected, how many are no numbers, and a poison that is none of them. */
static size_t look_at_expected(rt_session *s) {
  size_t nonfinite = 0;
  s->poison = RT_NOTHING_WRITTEN;
  for (int set = 0; set < 2; set++)
    for (uint32_t o = 0; o < s->output_count; o++) {
      rt_result *r = &s->outputs[o];
      const unsigned char *want = r->expected[set].at;
      size_t each = rt_size_of(r->type), n = r->at.size / each;
      double largest = 0;
      for (size_t i = 0; i < n; i++) {
        double x = rt_element(want, r->type, i);
        if (r->gaps && rt_all_bytes(want + i * each, each, RT_NOTHING_WRITTEN)) continue;
        if (!isfinite(x)) nonfinite += set == 1;
        else if (fabs(x) > largest && (set == 1 || fabs(x) <= RT_LARGE)) largest = fabs(x);
        /* Nothing written must not pass for a result: NaN, or -1. */
        if (isnan(x) || rt_all_bytes(want + i * each, each, RT_NOTHING_WRITTEN)) s->poison = 0xFE;
      }
      /* Of bytes a tolerance is a share of their range. */
      if (r->type == 'u' && largest < 255) largest = 255;
      r->largest[set] = largest == 0 ? 1 : largest;
      rt_read_only(&s->host->guards, &r->expected[set]);
    }
  return nonfinite;
}

int rt_set_task(rt_session *s, rt_plan *plan, uint64_t seed, const char *file,
                rt_task_result *result) {
  uint32_t of[RT_WORKSPACE + 1] = {0};
  s->task_ready = s->duel_ready = s->pace_ready = 0;
  rt_unload_kernel(s, 0);
  rt_unload_kernel(s, 1);
  result->seconds = 0;
  for (uint32_t i = 0; i < plan->buffer_count; i++) of[plan->buffers[i].role]++;
  if (of[RT_DATA] + of[RT_WEIGHT] > RT_TENSORS || of[RT_OUTPUT] > RT_TENSORS)
    return rt_fail(&s->host->error, "launch", "more than %d inputs or outputs", RT_TENSORS);
  if (!make_inputs(s, plan, seed) || !make_outputs(s, plan)) return 0;
  if (s->gpu && !s->gpu_task(s)) return 0;
  if (plan->kernel_count > 0) {
    if (!refer(s, plan, &result->seconds)) return 0;
    if (file && !keep(s, file, 1)) return 0;
  } else if (file && !keep(s, file, 0)) {
    return 0;
  }
  result->nonfinite = look_at_expected(s);
  s->task_ready = 1;
  return 1;
}
