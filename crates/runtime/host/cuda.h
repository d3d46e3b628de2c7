/* The GPU back end of a session (session.h), which runs kernels in CUDA C. */
#ifndef SQUALL_CUDA_H
#define SQUALL_CUDA_H
#include "gpu.h"
#include "session.h"

/* Lets a session use the GPU. */
int rt_gpu_attach(rt_session *s, rt_gpu *g);

#endif
