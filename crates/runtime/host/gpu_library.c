/* The code behind an exported network for GPUs: opening (finds the driver, loads cubins, brings
 * weights to device memory) and running on the caller's stream. gpu_library.h has the interface. */
#include "gpu_library.h"
#include "bases.h"
#include "digest.h"
#include "weights.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening ---- */

static int find_driver(rt_gpu_opened *o) {
  void *driver = dlsym(RTLD_DEFAULT, "cuInit") ? RTLD_DEFAULT : dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver && dlsym(RTLD_DEFAULT, "cuInit") == NULL) return RT_DEVICE;
#define RT_GPU_FIND(name, arguments)                                                              \
  *(void **)&o->name = dlsym(driver, #name);                                                      \
  if (!o->name) return RT_DEVICE;
  RT_GPU_CALLS(RT_GPU_FIND)
  *(void **)&o->encode = dlsym(driver, "cuTensorMapEncodeTiled");
  return RT_OK;
}

static int find_context(rt_gpu_opened *o) {
  void *context = NULL;
  int device;
  if (o->cuInit(0) != 0) return RT_DEVICE;
  if (o->cuCtxGetCurrent(&context) == 0 && context) return RT_OK;
  if (o->cuDeviceGet(&device, 0) != 0 || o->cuDevicePrimaryCtxRetain(&context, device) != 0 ||
      o->cuCtxSetCurrent(context) != 0)
    return RT_DEVICE;
  return RT_OK;
}

/* Loads a kernel's cubin, and finds what it launches. */
static int load_kernel(const rt_gpu_library *l, const rt_plan *p, rt_gpu_opened *o, uint32_t k) {
  const rt_kernel *kernel = &p->kernels[k];
  const void *cubin = NULL;
  for (size_t i = 0; i < l->kernel_count && !cubin; i++)
    if (strcmp(l->kernels[i].symbol, kernel->symbol) == 0) cubin = l->kernels[i].cubin;
  if (!cubin) return RT_OTHER;
  if (o->cuModuleLoadData(&o->modules[k], cubin) != 0) {
    o->modules[k] = NULL;
    return RT_DEVICE;
  }
  o->functions[k] = calloc(kernel->launch_count + 1u, sizeof *o->functions[k]);
  if (!o->functions[k]) return RT_MEMORY;
  for (uint32_t i = 0; i < kernel->launch_count; i++) {
    const rt_launch *launch = &kernel->launches[i];
    void **f = &o->functions[k][i];
    if (launch->prepare) continue;
    if (launch->map_count && !o->encode) return RT_DEVICE;
    if (o->cuModuleGetFunction(f, o->modules[k], launch->entry) != 0) return RT_OTHER;
    /* More than 48 KiB have to be asked for, and functions have some of their own. */
    if (launch->shared && o->cuFuncSetAttribute(*f, 8, (int)launch->shared) != 0)
      return RT_DEVICE;
    /* Clusters of more than 8 blocks. */
    o->cuFuncSetAttribute(*f, 14, 1);
  }
  return RT_OK;
}

/* Brings the regions of a file to device memory; `contents` become their addresses there. */
static int bring(rt_gpu_opened *o, const rt_plan *p, const void **contents) {
  for (uint32_t i = 0; i < p->region_count; i++) {
    const rt_region *r = &p->regions[i];
    if (!contents[i]) continue;
    if (o->cuMemAlloc_v2(&o->regions[i], (size_t)r->bytes) != 0) {
      o->regions[i] = 0;
      return RT_MEMORY;
    }
    if (o->cuMemcpyHtoD_v2(o->regions[i], contents[i], (size_t)r->bytes) != 0) return RT_DEVICE;
    contents[i] = (const void *)(uintptr_t)o->regions[i];
  }
  /* Streams of the caller's need not wait for the default one. */
  return o->cuStreamSynchronize(NULL) == 0 ? RT_OK : RT_DEVICE;
}

/* Opens what a file that is mapped holds; the plan is taken over. */
static int bind_plan(const rt_gpu_library *l, rt_plan *plan, const void *file, size_t bytes,
                     rt_gpu_opened *o) {
  rt_error e;
  const uint32_t kernels = plan->kernel_count;
  const void **contents = calloc(plan->region_count + 1u, sizeof *contents);
  rt_run_function **runs = calloc(kernels + 1u, sizeof *runs);
  o->regions = calloc(plan->region_count + 1u, sizeof *o->regions);
  o->modules = calloc(kernels + 1u, sizeof *o->modules);
  o->functions = calloc(kernels + 1u, sizeof *o->functions);
  int code = contents && runs && o->regions && o->modules && o->functions ? RT_OK : RT_MEMORY;
  if (code == RT_OK) {
    uint64_t digest = rt_digest(l->plan, l->plan_bytes);
    switch (rt_weights_check(file, bytes, plan, digest, contents)) {
    case RT_WEIGHTS_FINE: break;
    case RT_WEIGHTS_OTHER: code = RT_OTHER; break;
    case RT_WEIGHTS_VERSION_DIFFERS: code = RT_VERSION; break;
    default: code = RT_DAMAGED; break;
    }
  }
  for (uint32_t k = 0; k < kernels && code == RT_OK; k++) code = load_kernel(l, plan, o, k);
  if (code == RT_OK) code = bring(o, plan, contents);
  /* The plan is the library's own: only memory can be lacking. */
  if (code == RT_OK && !rt_model_open(&o->model, plan, contents, runs, &e)) code = RT_MEMORY;
  free(contents), free(runs);
  return code;
}

static int map(const char *path, void **to, size_t *size) {
  int f = open(path, O_RDONLY | O_CLOEXEC);
  struct stat s;
  if (f < 0) return RT_FILE;
  if (fstat(f, &s) != 0 || !S_ISREG(s.st_mode) || s.st_size <= 0) {
    close(f);
    return RT_FILE;
  }
  *size = (size_t)s.st_size;
  *to = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, f, 0);
  close(f);
  return *to == MAP_FAILED ? RT_FILE : RT_OK;
}

int rt_gpu_library_open(const rt_gpu_library *l, const char *path, rt_gpu_opened **to) {
  rt_error e;
  rt_plan plan;
  void *file;
  size_t bytes;
  if (!to || !path) return RT_ARGUMENT;
  *to = NULL;
  int code = map(path, &file, &bytes);
  if (code != RT_OK) return code;
  rt_gpu_opened *o = calloc(1, sizeof *o);
  code = o ? find_driver(o) : RT_MEMORY;
  if (code == RT_OK) code = find_context(o);
  if (code == RT_OK && !rt_plan_read(l->plan, l->plan_bytes, &plan, &e)) code = RT_MEMORY;
  else if (code == RT_OK) {
    const uint32_t kernels = plan.kernel_count, regions = plan.region_count;
    code = bind_plan(l, &plan, file, bytes, o);
    /* Closing goes by the model's plan, which is none yet where opening failed. */
    for (uint32_t k = 0; code != RT_OK && o->modules && k < kernels; k++)
      if (o->modules[k]) o->cuModuleUnload(o->modules[k]);
    for (uint32_t k = 0; code != RT_OK && o->functions && k < kernels; k++)
      free(o->functions[k]);
    for (uint32_t i = 0; code != RT_OK && o->regions && i < regions; i++)
      if (o->regions[i]) o->cuMemFree_v2(o->regions[i]);
    rt_plan_close(&plan);
  }
  munmap(file, bytes);
  if (code == RT_OK) *to = o;
  else if (o) free(o->regions), free(o->modules), free(o->functions), free(o);
  return code;
}

void rt_gpu_library_close(rt_gpu_opened *o) {
  if (!o) return;
  for (uint32_t k = 0; k < o->model.plan.kernel_count; k++) {
    o->cuModuleUnload(o->modules[k]);
    free(o->functions[k]);
  }
  for (uint32_t i = 0; i < o->model.plan.region_count; i++)
    if (o->regions[i]) o->cuMemFree_v2(o->regions[i]);
  free(o->regions), free(o->modules), free(o->functions);
  rt_model_close(&o->model);
  free(o);
}

/* ---- runs ---- */

/* Whether each step's call succeeded stands behind the arena. */
static size_t statuses_at(const rt_gpu_opened *o) {
  return (o->model.workspace_bytes + RT_GPU_ALIGNMENT - 1) / RT_GPU_ALIGNMENT * RT_GPU_ALIGNMENT;
}

size_t rt_gpu_library_workspace(const rt_gpu_opened *o) {
  return o ? statuses_at(o) + (o->model.plan.step_count + 1u) * sizeof(uint32_t) : 0;
}

static rt_device_pointer device(const void *p) { return (rt_device_pointer)(uintptr_t)p; }

static int launch(const rt_gpu_opened *o, const rt_kernel *k, const rt_launch *l, void *function,
                  const rt_memory *on, void *stream) {
  const void *values[RT_ARGUMENTS];
  void *arguments[RT_ARGUMENTS];
  rt_encoded_map maps[RT_MAPS];
  for (uint32_t i = 0; i < l->argument_count; i++) {
    const rt_argument *a = &l->arguments[i];
    if (a->kind == 'r' && o->cuMemcpyDtoDAsync_v2(device(on->outputs[a->index]),
                                                  device(on->data[a->from]),
                                                  (size_t)rt_restored_bytes(k, a), stream) != 0)
      return RT_LAUNCH;
  }
  for (uint32_t i = 0; i < l->map_count; i++)
    if (rt_encode_map(&l->maps[i], on, o->encode, &maps[i]) != 0) return RT_LAUNCH;
  rt_bind(l, on, values, maps, arguments);
  const uint32_t *b = l->blocks, *t = l->threads;
  int code = o->cuLaunchKernel(function, b[0], b[1], b[2], t[0], t[1], t[2], l->shared, stream,
                               arguments, NULL);
  return code == 0 ? RT_OK : RT_LAUNCH;
}

static int run_step(const rt_gpu_opened *o, uint32_t number, const rt_bases *b, void *stream) {
  const rt_instruction *i = &o->model.instructions[number];
  const uint32_t kernel = o->model.plan.steps[number].kernel;
  const rt_kernel *k = &o->model.plan.kernels[kernel];
  const void *data[RT_PARAMETERS];
  void *outputs[RT_PARAMETERS];
  for (uint32_t d = 0; d < i->data_count; d++) data[d] = rt_source(&i->operands[d], b);
  for (uint32_t n = 0; n < i->output_count; n++)
    outputs[n] = rt_target(&i->operands[i->data_count + n], b);
  uint32_t *status = (uint32_t *)(void *)(b->at[0] + statuses_at(o)) + number;
  rt_memory on = {data,
                  NULL,
                  outputs,
                  i->is_prepared ? rt_source(&i->prepared, b) : NULL,
                  i->has_workspace ? rt_target(&i->workspace, b) : NULL,
                  status};
  int code = RT_OK;
  for (uint32_t l = 0; l < k->launch_count && code == RT_OK; l++)
    if (!k->launches[l].prepare)
      code = launch(o, k, &k->launches[l], o->functions[kernel][l], &on, stream);
  return code;
}

/* Puts the copy of a tensor on the stream, unless it lies there already. */
static int put_copy(const rt_gpu_opened *o, void *to, const void *from, size_t bytes,
                    void *stream) {
  if (bytes == 0 || to == from) return RT_OK;
  return o->cuMemcpyDtoDAsync_v2(device(to), device(from), bytes, stream) == 0 ? RT_OK : RT_LAUNCH;
}

int rt_gpu_library_run(const rt_gpu_opened *o, const void *const *inputs, void *const *outputs,
                       void *workspace, void *stream) {
  const rt_model *m = &o->model;
  rt_bases b;
  if ((uintptr_t)workspace % RT_GPU_ALIGNMENT) return RT_UNALIGNED;
  size_t bytes = m->plan.step_count * sizeof(uint32_t);
  if (bytes && o->cuMemsetD8Async(device(workspace) + statuses_at(o), 0, bytes, stream) != 0)
    return RT_LAUNCH;
  rt_bases_find(m, inputs, outputs, workspace, RT_GPU_STEP, &b);
  int code = RT_OK;
  for (uint32_t i = 0; i < m->input_count && code == RT_OK; i++) {
    const rt_port *p = &m->inputs[i];
    code = put_copy(o, rt_target(&p->place, &b), inputs[i], p->bytes, stream);
  }
  for (uint32_t n = 0; n < m->plan.step_count && code == RT_OK; n++)
    code = run_step(o, n, &b, stream);
  for (uint32_t i = 0; i < m->output_count && code == RT_OK; i++) {
    const rt_port *p = &m->outputs[i];
    code = put_copy(o, outputs[i], rt_source(&p->place, &b), p->bytes, stream);
  }
  return code;
}

int rt_gpu_library_finish(const rt_gpu_opened *o, void *workspace, void *stream) {
  const uint32_t steps = o->model.plan.step_count;
  uint32_t piece[256];
  if (o->cuStreamSynchronize(stream) != 0) return RT_LAUNCH;
  for (uint32_t n = 0; n < steps; n += 256) {
    const uint32_t count = steps - n < 256 ? steps - n : 256;
    rt_device_pointer from = device(workspace) + statuses_at(o) + n * sizeof *piece;
    if (o->cuMemcpyDtoHAsync_v2(piece, from, count * sizeof *piece, stream) != 0 ||
        o->cuStreamSynchronize(stream) != 0)
      return RT_LAUNCH;
    for (uint32_t i = 0; i < count; i++)
      if (piece[i]) return RT_KERNEL;
  }
  return RT_OK;
}

const char *rt_gpu_library_error_text(int code) {
  switch (code) {
  case RT_OK: return "all went well";
  case RT_ARGUMENT: return "an argument is NULL, or a struct_size is smaller than the struct";
  case RT_UNALIGNED: return "the workspace is not aligned by 256 bytes, as device memory is";
  case RT_FILE: return "the file of weights cannot be opened or mapped";
  case RT_DAMAGED: return "it is no file of weights, or it is cut or changed: export it again";
  case RT_OTHER: return "the file of weights belongs to another network or another export";
  case RT_VERSION: return "the file of weights has another version or another byte order";
  case RT_MEMORY: return "there is not enough memory, of the host or of the device";
  case RT_KERNEL: return "a step refused its input, such as an index outside of its tensor";
  case RT_DEVICE:
    return "there is no NVIDIA driver or no GPU, or it is of another architecture than the "
           "kernels: export on such a GPU";
  case RT_LAUNCH: return "a launch failed: the context has an error, or a pointer is not its";
  default: return "there is no such code";
  }
}
