/* Launches the functions of an exported GPU kernel by its tables (launch.h). C++ over the CUDA
 * runtime; the text is part of each exported file, behind launch.h. */
#ifndef SQUALL_LAUNCHER_H
#define SQUALL_LAUNCHER_H
#include <cuda_runtime.h>
#include <dlfcn.h>

/* The driver's encoder of tensor maps, which programs of the runtime need not be linked with. */
static rt_encode_function *rt_encoder() {
  static rt_encode_function *const encode = [] {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, "cuTensorMapEncodeTiled") : nullptr;
    return (rt_encode_function *)found;
  }();
  return encode;
}

static cudaError_t rt_launch_one(const rt_launch *l, const void *f, const rt_memory *m,
                                 const void **values, void **arguments, cudaStream_t stream) {
  rt_encoded_map maps[8];
  cudaError_t e = cudaSuccess;
  for (uint32_t i = 0; i < l->argument_count && !e; i++) {
    const rt_argument *a = &l->arguments[i];
    if (a->kind == 'r')
      e = cudaMemcpyAsync(m->outputs[a->index], m->data[a->from], a->bytes,
                          cudaMemcpyDeviceToDevice, stream);
  }
  for (uint32_t i = 0; i < l->map_count && !e; i++) {
    if (!rt_encoder()) e = cudaErrorNotSupported;
    else if (rt_encode_map(&l->maps[i], m, rt_encoder(), &maps[i])) e = cudaErrorInvalidValue;
  }
  rt_bind(l, m, values, maps, arguments);
  /* More than 48 KiB have to be asked for, and functions have some beside what a launch gives them.
   * Clusters of more than 8 blocks too: devices without them refuse. */
  if (!e && l->shared > 0)
    e = cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)l->shared);
  if (cudaFuncSetAttribute(f, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess)
    cudaGetLastError();
  dim3 blocks(l->blocks[0], l->blocks[1], l->blocks[2]);
  dim3 threads(l->threads[0], l->threads[1], l->threads[2]);
  return e ? e : cudaLaunchKernel(f, blocks, threads, arguments, l->shared, stream);
}

/* The launches of one phase, in order. */
template <uint32_t COUNT, uint32_t MOST>
static int rt_launch_all(const rt_launch (&launches)[COUNT], const void *const (&functions)[COUNT],
                         int prepare, const rt_memory &m, cudaStream_t stream) {
  const void *values[MOST];
  void *arguments[MOST];
  cudaError_t e = cudaSuccess;
  for (uint32_t i = 0; i < COUNT && !e; i++)
    if (launches[i].prepare == prepare)
      e = rt_launch_one(&launches[i], functions[i], &m, values, arguments, stream);
  return (int)e;
}

#endif
