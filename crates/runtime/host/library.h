/* The code behind the C interface of an exported network for CPUs: opening the file of its
 * weights and closing it. Each exported network has one rt_library, with its plan and kernels. */
#ifndef SQUALL_LIBRARY_H
#define SQUALL_LIBRARY_H
#include "execute.h"

/* The results of the interface's calls. */
enum {
  RT_OK,
  RT_ARGUMENT,  /* a pointer is NULL, or a struct_size is too small */
  RT_UNALIGNED, /* memory is not aligned by RT_ALIGNMENT */
  RT_FILE,      /* a file cannot be opened or mapped */
  RT_DAMAGED,   /* it is no file of weights, or it is cut or changed */
  RT_OTHER,     /* it belongs to another network or another export */
  RT_VERSION,   /* it was written in another version of the format or another byte order */
  RT_CPU,       /* the processor lacks an instruction set of the kernels */
  RT_MEMORY,    /* there is not enough memory */
  RT_KERNEL     /* a kernel refused its input, such as an index outside of its tensor */
};

/* A kernel by the name that it has in the plan. */
typedef struct {
  const char *symbol;
  rt_run_function *run;
} rt_library_kernel;

typedef struct {
  const char *plan;
  size_t plan_bytes;
  const rt_library_kernel *kernels;
  size_t kernel_count;
} rt_library;

/* A network that was opened. */
typedef struct {
  rt_model model;
  const void *file;
  size_t file_bytes;
  int is_mapped, is_copied; /* else it is the caller's */
} rt_opened;

/* Maps the file of weights, or takes it from memory that outlives what is opened. Both give a code,
 * and NULL where it is none of RT_OK. */
int rt_library_open(const rt_library *l, const char *path, rt_opened **to);
/* The same with a copy in large pages, where the system has them. */
int rt_library_open_copy(const rt_library *l, const char *path, rt_opened **to);
int rt_library_open_memory(const rt_library *l, const void *file, size_t bytes, rt_opened **to);
/* Whether the weights are what was exported: reads all of them. */
int rt_library_verify(const rt_opened *o);
void rt_library_close(rt_opened *o);
/* What a code means, in a sentence. */
const char *rt_library_error_text(int code);

#endif
