/* How @NAME@ is opened and runs. Made by Squall. */
#define _GNU_SOURCE
#include "names.h"

#include "runtime/bases.c"
#include "runtime/digest.c"
#include "runtime/element.c"
#include "runtime/error.c"
#include "runtime/gpu_library.c"
#include "runtime/model.c"
#include "runtime/moves.c"
#include "runtime/plan.c"
#include "runtime/verify.c"
#include "runtime/weights.c"

#include "../@NAME@.h"
#include "cubins.h"
#include "describe.h"
#include "plan.h"

static const rt_gpu_library library = {plan_text, sizeof plan_text - 1, cubins,
                                       sizeof cubins / sizeof *cubins};

uint32_t @NAME@_abi_version(void) { return @UPPER@_ABI; }

const char *@NAME@_describe(void) { return description; }

int @NAME@_open(@NAME@_model **model, const char *path) {
  return rt_gpu_library_open(&library, path, (rt_gpu_opened **)model);
}

size_t @NAME@_workspace_bytes(const @NAME@_model *model) {
  return rt_gpu_library_workspace((const rt_gpu_opened *)model);
}

int @NAME@_run(const @NAME@_model *model, const @NAME@_io *io, void *workspace) {
  if (!model || !io || !workspace) return RT_ARGUMENT;
  if (io->struct_size < sizeof *io) return RT_ARGUMENT;
  const void *inputs[] = {@INPUTS@};
  void *outputs[] = {@OUTPUTS@};
  const rt_gpu_opened *o = (const rt_gpu_opened *)model;
  /* A tensor without elements may lie nowhere. */
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
    if (!inputs[i] && o->model.inputs[i].bytes) return RT_ARGUMENT;
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
    if (!outputs[i] && o->model.outputs[i].bytes) return RT_ARGUMENT;
  return rt_gpu_library_run(o, inputs, outputs, workspace, io->stream);
}

int @NAME@_finish(const @NAME@_model *model, void *workspace, void *stream) {
  if (!model || !workspace) return RT_ARGUMENT;
  return rt_gpu_library_finish((const rt_gpu_opened *)model, workspace, stream);
}

void @NAME@_close(@NAME@_model *model) { rt_gpu_library_close((rt_gpu_opened *)model); }

const char *@NAME@_error_text(int code) { return rt_gpu_library_error_text(code); }
