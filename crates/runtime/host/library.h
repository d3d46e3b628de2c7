/* The code behind the C interface of an exported network for CPUs: opening the file of its
 * weights and closing it. Each exported network has one rt_library, with its plan and kernels. */
#ifndef SQUALL_LIBRARY_H
#define SQUALL_LIBRARY_H
#include "execute.h"
#include "varying.h"

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
  RT_KERNEL,    /* a kernel refused its input, such as an index outside of its tensor */
  RT_EXTENT     /* an extent is outside of the range that the network was exported for */
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

enum { RT_KNOWN = 64 };

/* A model at some extents of a range. */
typedef struct rt_at {
  struct rt_at *next;
  int64_t extents[RT_SYMBOLS];
  rt_model model;
} rt_at;

/* A network that was opened. */
typedef struct {
  rt_model model; /* of a range the one at the largest extents */
  const rt_library *library;
  uint32_t symbols; /* how many extents a run has; 0 of a network of fixed ones */
  rt_run_function **runs; /* of a range: what models at further extents are made of */
  const void **contents;
  rt_at *known[RT_KNOWN]; /* models at extents that were met, each never changed; lists by a hash */
  uint32_t known_count;
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
/* The model at some extents, which stays until the network is closed, or until rt_library_leave()
 * where so many extents were met that it could not be kept. Gives a code. */
int rt_library_at(rt_opened *o, const int64_t *extents, rt_at **to);
void rt_library_leave(rt_opened *o, rt_at *at);
/* What a code means, in a sentence. */
const char *rt_library_error_text(int code);

#endif
