/* @NAME@: a network as a library. Made by Squall; README.md says how to build it.
 *
 *   @NAME@_model *model;
 *   int code = @NAME@_open(&model, "@NAME@.weights");   once
 *   void *workspace = ...;                              @NAME@_workspace_bytes(model), one a thread
 *   @NAME@_io io = {sizeof io, ...};                    the tensors, dense and row-major
 *   code = @NAME@_run(model, &io, workspace);           as often as you like
 *   @NAME@_close(model);
 *
 * A model is never written after it was opened: threads may share it, each with its own workspace.
 * A run allocates nothing, opens nothing and prints nothing@FIRST@. */
#ifndef @UPPER@_H
#define @UPPER@_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define @UPPER@_API __attribute__((visibility("default")))
#else
#define @UPPER@_API
#endif

/* The version of this interface. A library may have a later one: structs grow at their ends only,
 * and struct_size says how much of them the caller knows. */
#define @UPPER@_ABI 1

/* What a workspace needs. */
#define @UPPER@_WORKSPACE_BYTES @WORKSPACE@
#define @UPPER@_WORKSPACE_ALIGNMENT 64

/* How many threads a run is made for. */
#define @UPPER@_THREADS @THREADS@

/* What all calls that give an int give; @NAME@_error_text says it in words. */
enum {
  @UPPER@_OK = 0,
  @UPPER@_ERROR_ARGUMENT = 1,  /* a pointer is NULL, or a struct_size is too small */
  @UPPER@_ERROR_ALIGNMENT = 2, /* a workspace or weights in memory are not 64-byte aligned */
  @UPPER@_ERROR_FILE = 3,      /* the file of weights cannot be opened or mapped */
  @UPPER@_ERROR_DAMAGED = 4,   /* it is no file of weights, or it is cut or changed */
  @UPPER@_ERROR_OTHER = 5,     /* it belongs to another network or another export */
  @UPPER@_ERROR_VERSION = 6,   /* it has another version or another byte order */
  @UPPER@_ERROR_CPU = 7,       /* the processor lacks an instruction set of the kernels */
  @UPPER@_ERROR_MEMORY = 8,    /* there is not enough memory */
  @UPPER@_ERROR_KERNEL = 9,    /* a step refused its input, such as an index out of range */
  @UPPER@_ERROR_EXTENT = 10    /* an extent is outside of its range */
};

typedef struct @NAME@_model @NAME@_model;

/* Threads of the caller. parallel_for calls task(argument, n) for each n below tasks, on any
 * threads and in any order, and returns when all have returned. */
typedef struct {
  void *state;
  void (*parallel_for)(void *state, size_t tasks, void (*task)(void *argument, size_t number),
                       void *argument);
} @NAME@_pool;

@OPEN@/* The tensors of a run, at any address. */
typedef struct {
  size_t struct_size; /* sizeof(@NAME@_io) */
@FIELDS@
@EXTENTS@  const @NAME@_pool *pool; /* NULL: @DEFAULT_POOL@ */
} @NAME@_io;

/* The version of the interface that the library has. */
@UPPER@_API uint32_t @NAME@_abi_version(void);

/* JSON: names, types and shapes of the tensors, the instruction set, digests, how it was made. */
@UPPER@_API const char *@NAME@_describe(void);

/* Maps the file of weights, whose head is checked: nothing is copied. The file must not be cut
 * while it is open. */
@UPPER@_API int @NAME@_open(@NAME@_model **model, const char *path);

/* The same with a copy of the weights in large pages: opening takes longer, and runs of networks
 * whose weights do not fit the caches are some percent faster. The file may go. */
@UPPER@_API int @NAME@_open_copy(@NAME@_model **model, const char *path);

/* The same of weights in memory, 64-byte aligned, which must outlive the model. */
@UPPER@_API int @NAME@_open_memory(@NAME@_model **model, const void *weights, size_t bytes);

/* Whether the weights are those that were exported: reads all of them. Optional. */
@UPPER@_API int @NAME@_verify(const @NAME@_model *model);

/* Bytes of a workspace: @UPPER@_WORKSPACE_BYTES. */
@UPPER@_API size_t @NAME@_workspace_bytes(const @NAME@_model *model);

/* One inference. The workspace needs no content and keeps none. */
@UPPER@_API int @NAME@_run(const @NAME@_model *model, const @NAME@_io *io, void *workspace);

/* Lets a model go, which no run uses any more; NULL is fine. */
@UPPER@_API void @NAME@_close(@NAME@_model *model);

/* What a code means, in a sentence. */
@UPPER@_API const char *@NAME@_error_text(int code);

#ifdef __cplusplus
}
#endif
#endif
