/* The runner's end of the conversation with the process that started it, in lines over two pipes.
 * crates/runtime/src/protocol.rs holds the same messages as types; docs/plan-format.md describes
 * them. */
#ifndef SQUALL_CONVERSATION_H
#define SQUALL_CONVERSATION_H
#include "session.h"
#include <stdio.h>
#ifdef SQUALL_CUDA
#include "nvrtc.h"
#endif

enum { RT_PROTOCOL = 1 };

typedef struct {
  rt_host host;
  rt_session session;
  FILE *in;
  int out;
  char reply[1 << 16];
  size_t length;
  int compiles; /* whether it is a compiler, and runs no kernels */
#ifdef SQUALL_CUDA
  rt_gpu gpu;
  rt_nvrtc nvrtc;
#endif
} rt_runner;

/* Adds to the reply. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void rt_say(rt_runner *r, const char *format, ...);
/* Writes all of a text; ends the process where the other end is gone. */
void rt_send(int out, const char *text, size_t length);
/* Answers requests until there are no more; first the reply that was made before, or the failure
 * where it was not `fine`. */
void rt_converse(rt_runner *r, int fine);

/* What else the program can be started as; each makes the first reply. In devices.c. */
int rt_describe_gpu(rt_runner *r, int ordinal);
int rt_measure_roof(rt_runner *r, int ordinal, const char *architecture);
int rt_become_compiler(rt_runner *r, const char *architecture);
int rt_use_gpu(rt_runner *r, int ordinal);
int rt_answer_compile(rt_runner *r, const char *from, const char *to, const char *with);
/* The clocks of the GPU, if a kernel ran on it. */
void rt_say_clocks(rt_runner *r);

#endif
