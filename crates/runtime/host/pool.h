/* Threads as a run sees them: a function that performs some tasks and returns when all are done.
 * The threads may be OpenMP's (pool.c) or the caller's own. */
#ifndef SQUALL_POOL_H
#define SQUALL_POOL_H
#include <stddef.h>

typedef void rt_task(void *argument, size_t number);

/* `parallel_for` calls task(argument, n) for each n below `tasks`, in any order and by any threads.
 * `tasks` is how many a loop is cut into. No pool is NULL: then the calling thread does all. */
typedef struct {
  void *state;
  void (*parallel_for)(void *state, size_t tasks, rt_task *task, void *argument);
  size_t tasks;
} rt_pool;

/* Makes the pool of so many OpenMP threads; 0 where there is one thread, or no OpenMP. */
int rt_pool_of(size_t threads, rt_pool *pool);

#endif
