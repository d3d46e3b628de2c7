/* The session's own threads, which run the loops. */
enum { RELEASE_STATUS = 93 };
typedef void ort_status_release(OrtStatus *);

typedef struct {
  OrtTable table;
  const OrtContext *context;
} session_threads;

static void by_session(void *state, size_t tasks, void (*task)(void *, size_t), void *argument) {
  const session_threads *t = (const session_threads *)state;
  OrtTable table = t->table;
  OrtStatus *s = ORT(CONTEXT_PARALLEL, ort_parallel *)(t->context, task, tasks, tasks, argument);
  if (!s) return;
  ORT(RELEASE_STATUS, ort_status_release *)(s);
  for (size_t i = 0; i < tasks; i++) task(argument, i);
}

