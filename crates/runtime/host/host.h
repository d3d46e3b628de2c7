/* The state that the parts of the library share in one host program: the last error, whose code
 * is running (for the message of a crash), and which memory is guarded. The library has no
 * writable globals; a program has one rt_host. */
#ifndef SQUALL_HOST_H
#define SQUALL_HOST_H
#include "error.h"
#include "guard.h"
#include "plan.h"
#include <time.h>

enum { RT_TENSORS = 512, RT_NOTHING_WRITTEN = 0xFF };

struct rt_gpu;

/* A function that is linked into the program; the types are those of a kernel's language. */
typedef struct {
  const char *symbol;
  void (*run)(void);
  void (*prepare)(void); /* or NULL */
} rt_symbol;

/* An exported kernel: the plans of it and of its reference, as text. */
typedef struct {
  const char *name, *symbol, *plan, *reference;
  double flop, tolerance;
} rt_export;

typedef struct rt_host {
  rt_error error;
  const char *volatile phase; /* whose code runs now, for the message of a crash */
  clockid_t clock;
  const rt_symbol *symbols; /* what is linked in */
  size_t symbol_count;
  struct rt_gpu *gpu; /* NULL where there is none */
  rt_guards guards;
} rt_host;

void rt_host_open(rt_host *h);
/* Nanoseconds of the host's clock. */
double rt_now(const rt_host *h);
/* The phase where no kernel's code runs. */
void rt_idle(rt_host *h);

#endif
