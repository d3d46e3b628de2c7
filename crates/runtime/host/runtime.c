/* The C host library as one translation unit, which each program includes. SQUALL_CUDA adds
 * GPUs; SQUALL_NETWORK adds plans of many steps (moves.c is a unit of its own on CPUs);
 * SQUALL_RUNNER adds the conversation with a measurer. */
#define _GNU_SOURCE
#include "element.c"
#include "error.c"
#include "guard.c"
#include "host.c"
#include "kernel.c"
#include "plan.c"
#include "pool.c"
#include "verify.c"
#ifdef SQUALL_NETWORK
#define SQUALL_WRITES_WEIGHTS
#include "bases.c"
#include "digest.c"
#include "execute.c"
#include "model.c"
#include "weights.c"
#ifdef SQUALL_CUDA
#include "branches.c"
#include "gpu.c"
#include "gpu_network.c"
#include "module.c"
#include "moves.c"
#else
#include "packed.c"
#include "prepare.c"
#include "network.c"
#endif
#else
#include "session.c"
#include "timing.c"
#ifdef SQUALL_CUDA
#include "cuda.c"
#include "gpu.c"
#include "module.c"
#endif
#endif
#ifdef SQUALL_RUNNER
#ifdef SQUALL_CUDA
#include "nvrtc.c"
#endif
#include "reply.c"
#include "devices.c"
#include "conversation.c"
#endif
