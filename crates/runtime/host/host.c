/* Initialises the state of a host program (host.h), and reads its clock. */
#define _GNU_SOURCE
#include "host.h"
#include <string.h>
#include <unistd.h>

void rt_host_open(rt_host *h) {
  memset(h, 0, sizeof *h);
  h->clock = CLOCK_MONOTONIC;
  h->guards.page = (size_t)sysconf(_SC_PAGESIZE);
  rt_idle(h);
}

void rt_idle(rt_host *h) { h->phase = "the runner itself"; }

double rt_now(const rt_host *h) {
  struct timespec t;
  clock_gettime(h->clock, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}
