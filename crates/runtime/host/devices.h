/* The runner's requests about GPUs beside running kernels (describe, roof, compile); each
 * function makes a reply. */
#ifndef SQUALL_DEVICES_H
#define SQUALL_DEVICES_H
#include "reply.h"

int rt_describe_gpu(rt_runner *r, int ordinal);
int rt_measure_roof(rt_runner *r, int ordinal, const char *architecture);
int rt_become_compiler(rt_runner *r, const char *architecture);
int rt_use_gpu(rt_runner *r, int ordinal);
int rt_answer_compile(rt_runner *r, const char *from, const char *to, const char *with);
/* The clocks of the GPU, if a kernel ran on it. */
void rt_say_clocks(rt_runner *r);

#endif
