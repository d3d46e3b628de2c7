/* Loads a kernel's cubin on a GPU and launches its functions with the arguments that its plan
 * lists. */
#include "module.h"
#include <stdlib.h>
#include <string.h>

int rt_module_open(rt_gpu *g, const rt_kernel *k, rt_module *m) {
  uint32_t most = 1, maps = 1;
  memset(m, 0, sizeof *m);
  if (!rt_gpu_good(g, g->cuModuleLoad(&m->module, k->library), "its loading")) {
    m->module = NULL;
    return 0;
  }
  m->functions = calloc(k->launch_count, sizeof *m->functions);
  for (uint32_t i = 0; m->functions && i < k->launch_count; i++) {
    const rt_launch *l = &k->launches[i];
    cu_handle *f = &m->functions[i];
    if (!rt_gpu_good(g, g->cuModuleGetFunction(f, m->module, l->entry), l->entry)) return 0;
    /* More than 48 KiB have to be asked for, and functions have some beside what a launch gives
     * them. */
    if (l->shared &&
        !rt_gpu_good(g, g->cuFuncSetAttribute(*f, 8, (int)l->shared), "its shared memory"))
      return 0;
    /* Clusters of more than 8 blocks; a device without them refuses the launch. */
    g->cuFuncSetAttribute(*f, 14, 1);
    if (l->argument_count > most) most = l->argument_count;
    if (l->map_count > maps) maps = l->map_count;
  }
  m->values = calloc(most, sizeof *m->values);
  m->arguments = calloc(most, sizeof *m->arguments);
  m->maps = aligned_alloc(64, maps * sizeof *m->maps);
  if (m->functions && m->values && m->arguments && m->maps) return 1;
  return rt_fail(&g->host->error, "memory", "no memory for its launches");
}

void rt_module_close(rt_gpu *g, rt_module *m) {
  if (m->module) g->cuModuleUnload(m->module);
  free(m->functions), free(m->values), free(m->arguments), free(m->maps);
  memset(m, 0, sizeof *m);
}

/* The launch itself. With overlaps it is set up while the kernel before it in the stream ends
 * (programmatic stream serialisation). */
static cu_result launch(rt_gpu *g, cu_handle f, const rt_launch *l, cu_handle stream,
                        void **arguments) {
  enum { PROGRAMMATIC = 6 };
  const uint32_t *b = l->blocks, *t = l->threads;
  if (!g->overlaps || !g->cuLaunchKernelEx)
    return g->cuLaunchKernel(f, b[0], b[1], b[2], t[0], t[1], t[2], l->shared, stream, arguments,
                             NULL);
  rt_launch_attribute overlap;
  memset(&overlap, 0, sizeof overlap);
  overlap.id = PROGRAMMATIC, overlap.value.flag = 1;
  rt_launch_config c = {{b[0], b[1], b[2]}, {t[0], t[1], t[2]}, l->shared, stream, &overlap, 1};
  return g->cuLaunchKernelEx(&c, f, arguments, NULL);
}

static int launch_one(rt_gpu *g, rt_module *m, const rt_kernel *k, const rt_launch *l,
                  const rt_memory *on, cu_handle stream) {
  for (uint32_t i = 0; i < l->argument_count; i++) {
    const rt_argument *a = &l->arguments[i];
    if (a->kind != 'r') continue;
    cu_pointer to = (cu_pointer)(uintptr_t)on->outputs[a->index];
    cu_pointer from = (cu_pointer)(uintptr_t)on->data[a->from];
    size_t bytes = rt_restored_bytes(k, a);
    if (!rt_gpu_good(g, g->cuMemcpyDtoDAsync_v2(to, from, bytes, stream), "restoring an input"))
      return 0;
  }
  if (l->map_count && !g->cuTensorMapEncodeTiled)
    return rt_fail(&g->host->error, "launch",
                   "the driver is too old for tensor maps, which CUDA 12 has");
  for (uint32_t i = 0; i < l->map_count; i++) {
    int code = rt_encode_map(&l->maps[i], on, g->cuTensorMapEncodeTiled, &m->maps[i]);
    if (!rt_gpu_good(g, code, "a tensor map")) return 0;
  }
  rt_bind(l, on, m->values, m->maps, m->arguments);
  cu_handle f = m->functions[l - k->launches];
  return rt_gpu_good(g, launch(g, f, l, stream, m->arguments), "the launch");
}

int rt_module_launch(rt_gpu *g, rt_module *m, const rt_kernel *k, int prepare, const rt_memory *on,
                     cu_handle stream) {
  for (uint32_t i = 0; i < k->launch_count; i++)
    if (k->launches[i].prepare == prepare && !launch_one(g, m, k, &k->launches[i], on, stream))
      return 0;
  return 1;
}
