/* The state of the runner, with the reply that it puts together, and the functions that write
 * it. */
#ifndef SQUALL_REPLY_H
#define SQUALL_REPLY_H
#include "session.h"
#include <stdio.h>
#ifdef SQUALL_CUDA
#include "nvrtc.h"
#endif

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

#endif
