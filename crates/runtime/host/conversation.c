/* The runner's loop: reads a request line (with the plans behind it), carries it out and writes
 * the reply. The messages are those of crates/runtime/src/protocol.rs. */
#define _GNU_SOURCE
#include "conversation.h"
#include "devices.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { WORDS = 16, LONGEST_PLAN = 1 << 28 };

/* A request: its first word, the others, and the plans that came behind the line. */
typedef struct {
  char *word[WORDS];
  int count;
  rt_plan plans[2];
  int plan_count;
} request;

/* The value of `key=value`; NULL where there is none. */
static const char *field(const request *q, const char *key) {
  size_t n = strlen(key);
  for (int i = 1; i < q->count; i++)
    if (strncmp(q->word[i], key, n) == 0 && q->word[i][n] == '=') return q->word[i] + n + 1;
  return NULL;
}

static double real_field(const request *q, const char *key) {
  const char *text = field(q, key);
  return text ? atof(text) : 0;
}

static uint64_t whole_field(const request *q, const char *key) {
  const char *text = field(q, key);
  return text ? strtoull(text, NULL, 10) : 0;
}

static int receive_plan(rt_runner *r, uint64_t bytes, rt_plan *plan) {
  rt_error *e = &r->host.error;
  char *text = bytes <= LONGEST_PLAN ? malloc(bytes + 1) : NULL;
  if (!text) return rt_fail(e, "memory", "no memory for a plan");
  int fine = fread(text, 1, bytes, r->in) == bytes ? rt_plan_read(text, bytes, plan, e)
                                                   : rt_fail(e, "plan", "the plan is cut");
  free(text);
  return fine;
}

/* Cuts a line into words, and reads the plans that it announces. All of them are read, also behind
 * one that is refused: the next line begins there. */
static int read_request(rt_runner *r, char *line, request *q) {
  int fine = 1;
  char *rest = NULL;
  memset(q, 0, sizeof *q);
  for (char *w = strtok_r(line, " \n", &rest); w && q->count < WORDS;
       w = strtok_r(NULL, " \n", &rest))
    q->word[q->count++] = w;
  for (int i = 1; i < q->count; i++) {
    if (strncmp(q->word[i], "plan=", 5) != 0 || q->plan_count == 2) continue;
    fine &= receive_plan(r, strtoull(q->word[i] + 5, NULL, 10), &q->plans[q->plan_count++]);
  }
  return fine;
}

static int answer_task(rt_runner *r, request *q) {
  rt_task_result t;
  uint64_t seed = whole_field(q, "seed");
  if (!rt_set_task(&r->session, &q->plans[0], seed, field(q, "file"), &t)) return 0;
  rt_say(r, "task seconds=%.9f nonfinite=%zu", t.seconds, t.nonfinite);
  return 1;
}

static int answer_run(rt_runner *r, request *q) {
  rt_measured m;
  if (!rt_measure(&r->session, &q->plans[0], real_field(q, "tolerance"), real_field(q, "limit"),
                  whole_field(q, "flush"), &m))
    return 0;
  rt_say(r, "measured error=%.6g calls=%ld samples=", m.error, m.calls);
  for (int i = 0; i < m.windows; i++) rt_say(r, "%s%.4f", i ? "," : "", m.samples[i]);
  if (m.paced) rt_say(r, " pace=%.4f", m.pace);
  if (r->session.kernels[0].on != &rt_cpu) rt_say_clocks(r);
  rt_unload_kernel(&r->session, 0);
  return 1;
}

static int answer_pace(rt_runner *r, request *q) {
  double tolerance = real_field(q, "tolerance");
  if (!rt_pace(&r->session, &q->plans[0], tolerance, whole_field(q, "flush"))) return 0;
  rt_say(r, "paced nanos=%.4f", r->session.kernels[1].time);
  return 1;
}

static int answer_duel(rt_runner *r, request *q) {
  int loser = 0;
  const rt_contender *k = r->session.kernels;
  double tolerance = real_field(q, "tolerance");
  if (!rt_duel(&r->session, q->plans, tolerance, whole_field(q, "flush"), &loser)) {
    rt_say(r, "failed side=%c", loser ? 'b' : 'a');
    return 0;
  }
  rt_say(r, "duel errors=%.6g,%.6g calls=%ld,%ld nanos=%.4f,%.4f", k[0].error, k[1].error,
         k[0].calls, k[1].calls, k[0].time, k[1].time);
  return 1;
}

static int answer_pairs(rt_runner *r, const request *q) {
  uint64_t count = whole_field(q, "count");
  rt_say(r, "pairs times=");
  for (uint64_t i = 0; i < count && i < RT_PAIRS; i++) {
    double t[2];
    if (!rt_pair(&r->session, t)) {
      r->length = 0;
      return 0;
    }
    rt_say(r, "%s%.4f,%.4f", i ? "," : "", t[0], t[1]);
  }
  return 1;
}

static int obey(rt_runner *r, request *q) {
  const rt_session *s = &r->session;
  const char *verb = q->count > 0 ? q->word[0] : "";
  int plans = q->plan_count, ready = s->task_ready;
  if (r->compiles) {
    const char *from = field(q, "from"), *to = field(q, "to");
    if (strcmp(verb, "compile") == 0 && from && to)
      return rt_answer_compile(r, from, to, field(q, "with"));
  } else {
    if (strcmp(verb, "task") == 0 && plans == 1) return answer_task(r, q);
    if (strcmp(verb, "run") == 0 && plans == 1 && ready) return answer_run(r, q);
    if (strcmp(verb, "pace") == 0 && plans == 1 && ready) return answer_pace(r, q);
    if (strcmp(verb, "duel") == 0 && plans == 2 && ready) return answer_duel(r, q);
    if (strcmp(verb, "pairs") == 0 && s->duel_ready) return answer_pairs(r, q);
  }
  return rt_fail(&r->host.error, "launch", "the runner does not understand `%.40s` now", verb);
}

static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Each reply is `CPU WORDS`: the CPU time in seconds that the request took. A reply begun as
 * `failed` already says more than the error does. */
void rt_converse(rt_runner *r, int fine) {
  double before = 0;
  char *line = NULL;
  size_t room = 0;
  do {
    double after = cpu_seconds();
    char start[32];
    int n = snprintf(start, sizeof start, "%.6f ", after - before);
    rt_send(r->out, start, (size_t)n);
    if (!fine) {
      if (strncmp(r->reply, "failed", 6) != 0 || r->length == 0) r->length = 0, rt_say(r, "failed");
      rt_say(r, " where=%s message=%s", r->host.error.where, r->host.error.text);
    }
    r->reply[r->length++] = '\n';
    rt_send(r->out, r->reply, r->length);
    r->length = 0;
    before = after;
    if (getline(&line, &room, r->in) < 0) break;
    request q;
    fine = read_request(r, line, &q) && obey(r, &q);
    rt_plan_close(&q.plans[0]);
    rt_plan_close(&q.plans[1]);
  } while (1);
  free(line);
}
