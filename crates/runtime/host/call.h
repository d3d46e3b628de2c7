/* The types of a generated kernel's C functions: the call, and the preparation of its weights. */
#ifndef SQUALL_CALL_H
#define SQUALL_CALL_H

/* One call; 0 is success. Where a model runs it, the word ahead of the first data pointer is the
 * pool of the run or NULL, for kernels that share their loops by a pool. */
typedef int rt_run_function(const void *const *data, void *const *outputs, const void *prepared,
                            void *workspace);
/* Packs constant weights, once. */
typedef int rt_prepare_function(const void *const *weights, void *prepared);

#endif
