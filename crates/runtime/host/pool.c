/* The pool of threads of programs and libraries that are compiled with OpenMP; others get none. */
#include "pool.h"

#ifdef _OPENMP
static void by_openmp(void *state, size_t tasks, rt_task *task, void *argument) {
  (void)state;
#pragma omp parallel for schedule(static) num_threads((int)tasks)
  for (size_t i = 0; i < tasks; i++) task(argument, i);
}
#endif

int rt_pool_of(size_t threads, rt_pool *pool) {
#ifdef _OPENMP
  pool->state = NULL;
  pool->parallel_for = by_openmp;
  pool->tasks = threads;
  return threads > 1;
#else
  (void)threads, (void)pool;
  return 0;
#endif
}
