/* How @NAME@ is opened and described. Made by Squall. */
#define _GNU_SOURCE
#include "names.h"

#include "runtime/cpu.c"
#include "runtime/digest.c"
#include "runtime/element.c"
#include "runtime/error.c"
#include "runtime/library.c"
#include "runtime/model.c"
#include "runtime/plan.c"
#include "runtime/varying.c"
#include "runtime/verify.c"
#include "runtime/weights.c"

#include "../@NAME@.h"
#include "describe.h"
#include "kernels.h"
#include "plan.h"

static const rt_library library = {plan_text, sizeof plan_text - 1, kernels,
                                   sizeof kernels / sizeof *kernels};

uint32_t @NAME@_abi_version(void) { return @UPPER@_ABI; }

const char *@NAME@_describe(void) { return description; }

int @NAME@_open(@NAME@_model **model, const char *path) {
  return rt_library_open(&library, path, (rt_opened **)model);
}

int @NAME@_open_copy(@NAME@_model **model, const char *path) {
  return rt_library_open_copy(&library, path, (rt_opened **)model);
}

int @NAME@_open_memory(@NAME@_model **model, const void *weights, size_t bytes) {
  return rt_library_open_memory(&library, weights, bytes, (rt_opened **)model);
}

int @NAME@_verify(const @NAME@_model *model) {
  return rt_library_verify((const rt_opened *)model);
}

size_t @NAME@_workspace_bytes(const @NAME@_model *model) {
  return model ? ((const rt_opened *)model)->model.workspace_bytes : 0;
}

void @NAME@_close(@NAME@_model *model) { rt_library_close((rt_opened *)model); }

const char *@NAME@_error_text(int code) { return rt_library_error_text(code); }
