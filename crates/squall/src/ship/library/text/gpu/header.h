/* @NAME@: a network as a library, for GPUs of NVIDIA (@ARCHITECTURE@). Made by Squall; README.md
 * says how to build it.
 *
 *   @NAME@_model *model;
 *   int code = @NAME@_open(&model, "@NAME@.weights");   once, in a CUDA context
 *   void *workspace = ...;            device memory of @NAME@_workspace_bytes(model), one a stream
 *   @NAME@_io io = {sizeof io, ...};  the tensors in device memory, dense and row-major, a stream
 *   code = @NAME@_run(model, &io, workspace);           as often as you like
 *   @NAME@_close(model);
 *
 * A model is never written after it was opened: threads and streams may share it, each with its own
 * workspace. A run puts launches on the stream and returns; it allocates nothing, waits for nothing
 * and prints nothing, so that a stream that is captured records it, with the addresses of its
 * tensors: replayed as a graph, its launches cost no host time. */
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

/* What a workspace needs, in device memory; what cudaMalloc and cuMemAlloc give is aligned so. */
#define @UPPER@_WORKSPACE_BYTES @WORKSPACE@
#define @UPPER@_WORKSPACE_ALIGNMENT 256

/* What all calls that give an int give; @NAME@_error_text says it in words. */
enum {
  @UPPER@_OK = 0,
  @UPPER@_ERROR_ARGUMENT = 1,  /* a pointer is NULL, or a struct_size is too small */
  @UPPER@_ERROR_ALIGNMENT = 2, /* a workspace is not aligned */
  @UPPER@_ERROR_FILE = 3,      /* the file of weights cannot be opened or mapped */
  @UPPER@_ERROR_DAMAGED = 4,   /* it is no file of weights, or it is cut or changed */
  @UPPER@_ERROR_OTHER = 5,     /* it belongs to another network or another export */
  @UPPER@_ERROR_VERSION = 6,   /* it has another version or another byte order */
  @UPPER@_ERROR_MEMORY = 8,    /* there is not enough memory, of the host or of the device */
  @UPPER@_ERROR_KERNEL = 9,    /* a step refused its input, such as an index out of range */
  @UPPER@_ERROR_DEVICE = 10,   /* no driver, no GPU, or a GPU that the kernels are not for */
  @UPPER@_ERROR_LAUNCH = 11    /* a launch failed */
};

typedef struct @NAME@_model @NAME@_model;

/* The tensors of a run, in memory of the model's GPU, at any address. Kernels read and write them
 * there, without a copy, unless an address is no multiple of 16 bytes or an output has a byte in
 * common with another tensor; those are copied on the stream, and the numbers are the same. */
typedef struct {
  size_t struct_size; /* sizeof(@NAME@_io) */
@FIELDS@
  void *stream; /* a cudaStream_t, which is a CUstream; NULL is the default stream */
} @NAME@_io;

/* The version of the interface that the library has. */
@UPPER@_API uint32_t @NAME@_abi_version(void);

/* JSON: names, types and shapes of the tensors, the architecture, digests, how it was made. */
@UPPER@_API const char *@NAME@_describe(void);

/* Brings the weights to device memory, in the calling thread's current context; where there is
 * none, the primary one of the first GPU becomes it. The file may go. */
@UPPER@_API int @NAME@_open(@NAME@_model **model, const char *path);

/* Bytes of a workspace: @UPPER@_WORKSPACE_BYTES. */
@UPPER@_API size_t @NAME@_workspace_bytes(const @NAME@_model *model);

/* One inference on the stream. The workspace needs no content; none but this run may use it until
 * the stream has come to its end. Until then all tensors have to stay, and no other stream may
 * write an input; a graph that recorded the run needs them at each replay. */
@UPPER@_API int @NAME@_run(const @NAME@_model *model, const @NAME@_io *io, void *workspace);

/* Waits for a stream, and says whether the last run with a workspace refused its input. Only models
 * that look values up by numbers that they are given can do so. */
@UPPER@_API int @NAME@_finish(const @NAME@_model *model, void *workspace, void *stream);

/* Lets a model go, which no run uses any more; NULL is fine. */
@UPPER@_API void @NAME@_close(@NAME@_model *model);

/* What a code means, in a sentence. */
@UPPER@_API const char *@NAME@_error_text(int code);

#ifdef __cplusplus
}
#endif
#endif
