/* How @NAME@ runs. This file and the kernels are all that a run reaches: they open nothing, print
 * nothing, and without lengths that only the run knows they allocate nothing and have no variables
 * that could be written. Made by Squall. */
#include "names.h"

#include "runtime/bases.c"
#include "runtime/execute.c"
#include "runtime/moves.c"

#include "../@NAME@.h"
#include "runtime/library.h"

enum { THREADS = @THREADS@ };

static int run(const rt_model *m, const @NAME@_io *io, void *workspace) {
  const void *inputs[] = {@INPUTS@};
  void *outputs[] = {@OUTPUTS@};
  /* A tensor without elements may lie nowhere. */
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
    if (!inputs[i] && m->inputs[i].bytes) return RT_ARGUMENT;
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
    if (!outputs[i] && m->outputs[i].bytes) return RT_ARGUMENT;
  if ((uintptr_t)workspace % RT_ALIGNMENT) return RT_UNALIGNED;
@CLEAR@  rt_pool pool;
  const rt_pool *shared = NULL;
@POOL@
  return rt_execute(m, inputs, outputs, workspace, shared, NULL) == RT_NONE ? RT_OK : RT_KERNEL;
}

int @NAME@_run(const @NAME@_model *model, const @NAME@_io *io, void *workspace) {
  if (!model || !io || !workspace) return RT_ARGUMENT;
  if (io->struct_size < offsetof(@NAME@_io, pool)) return RT_ARGUMENT;
@MODEL@}
