/* Moves of data between buffers, the steps of a plan that are no kernels: copies along axes,
 * runs of elements, fills with a value. */
#ifndef SQUALL_MOVES_H
#define SQUALL_MOVES_H
#include "plan.h"
#include "pool.h"

/* A move of elements of `size` bytes, relative to the starts of its two buffers. Where a copy reads
 * elements of another size, `from_size`, it converts them: from 32-bit floats to bf16 (or to f16,
 * if `f16`), or from that format to 32-bit floats. */
typedef struct {
  rt_step_kind kind;
  int f16;
  size_t size, from_size;
  uint64_t from_at, to_at; /* bytes */
  uint64_t count;
  const uint64_t *runs;
  unsigned char value[8]; /* of a fill */
  uint32_t rank;
  rt_axis axes[RT_AXES + 2];
} rt_move;

/* The facts of a buffer's elements that a move needs. */
typedef struct {
  size_t size;
  int is_f16;
} rt_moved;

/* Makes the move of a step ready. */
void rt_move_ready(rt_move *m, const rt_step *s, rt_moved from, rt_moved to);
/* Performs it between buffers; it allocates nothing. A fill reads no source. */
void rt_move_run(const rt_move *m, const void *from, void *to, const rt_pool *pool);

#endif
