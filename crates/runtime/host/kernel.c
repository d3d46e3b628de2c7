/* Loads a kernel in C: from a shared library by dlopen, or from the table of functions that are
 * linked into the program. Checks that the sizes that it announces agree with the plan's. */
#define _GNU_SOURCE
#include "kernel.h"
#include <dlfcn.h>
#include <fenv.h>
#include <stdio.h>
#include <string.h>

typedef size_t size_function(void);

static int agrees(rt_host *h, void *library, const char *symbol, const char *suffix,
                  uint64_t announced) {
  char name[600];
  snprintf(name, sizeof name, "%s_%s", symbol, suffix);
  size_function *f = (size_function *)(uintptr_t)dlsym(library, name);
  if (!f) return 1;
  h->phase = name;
  size_t said = f();
  rt_idle(h);
  if (said == announced) return 1;
  return rt_fail(&h->error, "launch", "%s() says %zu, %zu was announced", name, said,
                 (size_t)announced);
}

const rt_symbol *rt_linked(rt_host *h, const rt_kernel *k) {
  for (size_t i = 0; i < h->symbol_count; i++)
    if (strcmp(h->symbols[i].symbol, k->symbol) == 0) return &h->symbols[i];
  rt_fail(&h->error, "launch", "has no symbol `%s`", k->symbol);
  return NULL;
}

/* Fills the array of numbers of a library that several kernels share. */
static int fill_numbers(rt_host *h, void *library, const rt_kernel *k) {
  char name[600];
  snprintf(name, sizeof name, "%s_numbers", k->symbol);
  long *numbers = dlsym(library, name);
  if (!numbers) return rt_fail(&h->error, "launch", "has no symbol `%s`", name);
  if (!agrees(h, library, k->symbol, "number_count", k->number_count)) return 0;
  for (uint32_t i = 0; i < k->number_count; i++) numbers[i] = (long)k->numbers[i];
  return 1;
}

static int load_library(rt_host *h, const rt_kernel *k, rt_loaded *to) {
  char name[600];
  fesetenv(FE_DFL_ENV);
  h->phase = "its loading";
  to->library = dlopen(k->library, RTLD_NOW | RTLD_LOCAL);
  rt_idle(h);
  if (!to->library) return rt_fail(&h->error, "launch", "cannot be loaded: %s", dlerror());
  to->run = (rt_run_function *)(uintptr_t)dlsym(to->library, k->symbol);
  if (!to->run) return rt_fail(&h->error, "launch", "has no symbol `%s`", k->symbol);
  if (k->number_count && !fill_numbers(h, to->library, k)) return 0;
  if (!agrees(h, to->library, k->symbol, "prepared_bytes", k->prepared)) return 0;
  if (!agrees(h, to->library, k->symbol, "workspace_bytes", k->workspace)) return 0;
  if (k->prepared == 0) return 1;
  snprintf(name, sizeof name, "%s_prepare", k->symbol);
  to->prepare = (rt_prepare_function *)(uintptr_t)dlsym(to->library, name);
  return to->prepare ? 1 : rt_fail(&h->error, "launch", "has no symbol `%s`", name);
}

int rt_load(rt_host *h, const rt_kernel *k, rt_loaded *to) {
  memset(to, 0, sizeof *to);
  if (k->library) {
    if (load_library(h, k, to)) return 1;
    rt_unload(h, to);
    return 0;
  }
  if (k->number_count) return rt_fail(&h->error, "launch", "numbers of a kernel that is linked in");
  const rt_symbol *s = rt_linked(h, k);
  if (!s) return 0;
  to->run = (rt_run_function *)s->run;
  to->prepare = (rt_prepare_function *)s->prepare;
  if (k->prepared == 0 || to->prepare) return 1;
  return rt_fail(&h->error, "launch", "has no symbol `%s_prepare`", k->symbol);
}

void rt_unload(rt_host *h, rt_loaded *loaded) {
  h->phase = "its unloading";
  if (loaded->library) dlclose(loaded->library);
  rt_idle(h);
  memset(loaded, 0, sizeof *loaded);
}

int rt_prepare(rt_host *h, const rt_kernel *k, const rt_loaded *loaded, const void *const *weights,
               void *prepared) {
  h->phase = "its preparation of weights";
  int code = loaded->prepare(weights, prepared);
  rt_idle(h);
  return code == 0 || rt_fail(&h->error, "launch", "%s_prepare returned %d", k->symbol, code);
}
