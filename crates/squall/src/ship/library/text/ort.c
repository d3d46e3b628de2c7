/* @NAME@ as an operator of ONNX Runtime: a user adds one line,
 *
 *   options.register_custom_ops_library("lib@NAME@_ort.so")
 *
 * and loads @NAME@_ort.onnx, whose one node is this operator. The weights are those beside the
 * library. Made by Squall.
 *
 * Of ONNX Runtime's C interface only what is needed is declared here: the table of functions, whose
 * places are fixed once they were published, and the struct of an operator at version 16. A runtime
 * that is too old gives no table, and registration fails with a message. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../@NAME@.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ONNX Runtime ---- */

typedef struct OrtStatus OrtStatus;
typedef struct OrtValue OrtValue;
typedef struct OrtShape OrtShape;
typedef struct OrtContext OrtContext;
typedef struct OrtDomain OrtDomain;
typedef struct OrtOptions OrtOptions;
typedef struct OrtInfo OrtInfo;
typedef struct OrtOperator OrtOperator;
typedef void (*OrtFunction)(void);
typedef const OrtFunction *OrtTable;

typedef struct {
  OrtTable (*table)(uint32_t version);
  const char *(*version)(void);
} OrtBase;

/* The version whose functions are called, and the one of the operator's struct. */
enum { ORT_TABLE = 17, ORT_OPERATOR = 16 };
enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 };

struct OrtOperator {
  uint32_t version;
  void *(*create)(const OrtOperator *, OrtTable, const OrtInfo *);
  const char *(*name)(const OrtOperator *);
  const char *(*provider)(const OrtOperator *);
  int (*input_type)(const OrtOperator *, size_t);
  size_t (*input_count)(const OrtOperator *);
  int (*output_type)(const OrtOperator *, size_t);
  size_t (*output_count)(const OrtOperator *);
  void (*compute)(void *, OrtContext *);
  void (*destroy)(void *);
  int (*input_characteristic)(const OrtOperator *, size_t);
  int (*output_characteristic)(const OrtOperator *, size_t);
  int (*input_memory)(const OrtOperator *, size_t);
  int (*variadic_input_arity)(const OrtOperator *);
  int (*variadic_input_alike)(const OrtOperator *);
  int (*variadic_output_arity)(const OrtOperator *);
  int (*variadic_output_alike)(const OrtOperator *);
  OrtStatus *(*create_or_fail)(const OrtOperator *, OrtTable, const OrtInfo *, void **);
  OrtStatus *(*compute_or_fail)(void *, OrtContext *);
  OrtFunction later[8]; /* of later versions, which are not asked for */
};

/* Functions by their place in the table. */
#define ORT(place, type) ((type)table[place])
typedef OrtStatus *ort_status(int code, const char *text);
typedef OrtStatus *ort_domain(const char *name, OrtDomain **);
typedef OrtStatus *ort_domain_add(OrtDomain *, const OrtOperator *);
typedef OrtStatus *ort_options_add(OrtOptions *, OrtDomain *);
typedef OrtStatus *ort_data(OrtValue *, void **);
typedef OrtStatus *ort_type(const OrtShape *, int *);
typedef OrtStatus *ort_rank(const OrtShape *, size_t *);
typedef OrtStatus *ort_extents(const OrtShape *, int64_t *, size_t);
typedef OrtStatus *ort_shape(const OrtValue *, OrtShape **);
typedef OrtStatus *ort_input(const OrtContext *, size_t, const OrtValue **);
typedef OrtStatus *ort_output(OrtContext *, size_t, const int64_t *, size_t, OrtValue **);
typedef void ort_shape_release(OrtShape *);
typedef OrtStatus *ort_parallel(const OrtContext *, void (*)(void *, size_t), size_t, size_t,
                                void *);
enum {
  CREATE_STATUS = 0,
  CREATE_DOMAIN = 26,
  DOMAIN_ADD = 27,
  OPTIONS_ADD = 28,
  TENSOR_DATA = 51,
  TENSOR_TYPE = 60,
  TENSOR_RANK = 61,
  TENSOR_EXTENTS = 62,
  TENSOR_SHAPE = 65,
  CONTEXT_INPUT = 90,
  CONTEXT_OUTPUT = 91,
  RELEASE_SHAPE = 99,
  CONTEXT_PARALLEL = 274
};

/* ---- the network ---- */

@TENSORS@

/* Memory of one run; those that no run uses are kept in a list. */
typedef struct memory {
  struct memory *next;
  void *workspace;
} memory;

typedef struct {
  OrtTable table;
  @NAME@_model *model;
  pthread_mutex_t lock;
  memory *free;
} kernel;

static OrtStatus *failed(OrtTable table, const char *text) {
  return ORT(CREATE_STATUS, ort_status *)(ORT_FAIL, text);
}

/* The file of weights beside this library. */
static int weights_path(char *to, size_t room) {
  Dl_info info;
  if (!dladdr((void *)(uintptr_t)inputs, &info) || !info.dli_fname) return 0;
  const char *end = strrchr(info.dli_fname, '/');
  int folder = end ? (int)(end - info.dli_fname) : 1;
  int length = snprintf(to, room, "%.*s/@NAME@.weights", folder, end ? info.dli_fname : ".");
  return length > 0 && (size_t)length < room;
}

static memory *take(kernel *k) {
  pthread_mutex_lock(&k->lock);
  memory *m = k->free;
  if (m) k->free = m->next;
  pthread_mutex_unlock(&k->lock);
  if (m) return m;
  m = (memory *)calloc(1, sizeof *m);
  size_t bytes = @NAME@_workspace_bytes(k->model), large = (size_t)2 << 20;
  if (m && posix_memalign(&m->workspace, bytes >= large ? large : 64, bytes ? bytes : 64) == 0) {
@HUGE@
    return m;
  }
  free(m);
  return NULL;
}

static void give_back(kernel *k, memory *m) {
  pthread_mutex_lock(&k->lock);
  m->next = k->free;
  k->free = m;
  pthread_mutex_unlock(&k->lock);
}

static void destroy(void *kernel_) {
  kernel *k = (kernel *)kernel_;
  while (k->free) {
    memory *m = k->free;
    k->free = m->next;
    free(m->workspace);
    free(m);
  }
  @NAME@_close(k->model);
  pthread_mutex_destroy(&k->lock);
  free(k);
}

static OrtStatus *create_or_fail(const OrtOperator *op, OrtTable table, const OrtInfo *info,
                                 void **to) {
  (void)op, (void)info;
  char path[4096], text[4400];
  if (!weights_path(path, sizeof path)) return failed(table, "@NAME@: its weights are not found");
  kernel *k = (kernel *)calloc(1, sizeof *k);
  if (!k) return failed(table, "@NAME@: there is not enough memory");
  k->table = table;
  int code = @NAME@_open(&k->model, path);
  if (code != @UPPER@_OK) {
    free(k);
    snprintf(text, sizeof text, "@NAME@: %s: %s", path, @NAME@_error_text(code));
    return failed(table, text);
  }
  pthread_mutex_init(&k->lock, NULL);
  *to = k;
  return NULL;
}

/* The data of an input, once its type and shape are seen to be right. */
static OrtStatus *input_of(const kernel *k, OrtContext *context, size_t number, const void **to) {
  OrtTable table = k->table;
  const tensor *want = &inputs[number];
  const OrtValue *value = NULL;
  OrtShape *shape = NULL;
  int type = 0;
  size_t rank = 0;
  int64_t extents[RANK];
  OrtStatus *s = ORT(CONTEXT_INPUT, ort_input *)(context, number, &value);
  if (s) return s;
  if (!value) return failed(table, "@NAME@: an input is missing");
  if ((s = ORT(TENSOR_SHAPE, ort_shape *)(value, &shape))) return s;
  s = ORT(TENSOR_TYPE, ort_type *)(shape, &type);
  if (!s) s = ORT(TENSOR_RANK, ort_rank *)(shape, &rank);
  if (!s && rank == want->rank && rank > 0)
    s = ORT(TENSOR_EXTENTS, ort_extents *)(shape, extents, rank);
  ORT(RELEASE_SHAPE, ort_shape_release *)(shape);
  if (s) return s;
  int same = type == want->type && rank == want->rank;
  for (size_t i = 0; same && i < rank; i++) same = extents[i] == want->extents[i];
  if (!same)
    return ORT(CREATE_STATUS, ort_status *)(ORT_INVALID_ARGUMENT,
                                            "@NAME@: an input has another type or shape than the "
                                            "network was exported for");
  void *data = NULL;
  if ((s = ORT(TENSOR_DATA, ort_data *)((OrtValue *)(uintptr_t)value, &data))) return s;
  *to = data;
  return NULL;
}

@PARALLEL@static OrtStatus *compute_or_fail(void *kernel_, OrtContext *context) {
  kernel *k = (kernel *)kernel_;
  OrtTable table = k->table;
  const void *in[INPUTS] = {NULL};
  void *out[OUTPUTS] = {NULL};
  for (size_t i = 0; i < INPUTS; i++) {
    OrtStatus *s = input_of(k, context, i, &in[i]);
    if (s) return s;
  }
  for (size_t i = 0; i < OUTPUTS; i++) {
    OrtValue *value = NULL;
    OrtStatus *s = ORT(CONTEXT_OUTPUT, ort_output *)(context, i, outputs[i].extents,
                                                     outputs[i].rank, &value);
    if (!s) s = ORT(TENSOR_DATA, ort_data *)(value, &out[i]);
    if (s) return s;
  }
  memory *m = take(k);
  if (!m) return failed(table, "@NAME@: there is not enough memory");
@POOL@
  @NAME@_io io = {sizeof io, @IO@, pool};
  int code = @NAME@_run(k->model, &io, m->workspace);
  give_back(k, m);
  return code == @UPPER@_OK ? NULL : failed(table, @NAME@_error_text(code));
}

/* ---- the operator ---- */

static const char *name(const OrtOperator *op) {
  (void)op;
  return "@NAME@";
}

static const char *provider(const OrtOperator *op) {
  (void)op;
  return NULL; /* the CPU */
}

static int input_type(const OrtOperator *op, size_t number) {
  (void)op;
  return inputs[number].type;
}

static int output_type(const OrtOperator *op, size_t number) {
  (void)op;
  return outputs[number].type;
}

static size_t input_count(const OrtOperator *op) {
  (void)op;
  return INPUTS;
}

static size_t output_count(const OrtOperator *op) {
  (void)op;
  return OUTPUTS;
}

/* Required inputs in the provider's own memory; nothing is variadic. */
static int none_of(const OrtOperator *op, size_t number) {
  (void)op, (void)number;
  return 0;
}

static int no(const OrtOperator *op) {
  (void)op;
  return 0;
}

static const OrtOperator operator_ = {
    .version = ORT_OPERATOR,
    .name = name,
    .provider = provider,
    .input_type = input_type,
    .input_count = input_count,
    .output_type = output_type,
    .output_count = output_count,
    .destroy = destroy,
    .input_characteristic = none_of,
    .output_characteristic = none_of,
    .input_memory = none_of,
    .variadic_input_arity = no,
    .variadic_input_alike = no,
    .variadic_output_arity = no,
    .variadic_output_alike = no,
    .create_or_fail = create_or_fail,
    .compute_or_fail = compute_or_fail,
};

/* What ONNX Runtime calls. The domain lives as long as the program: sessions that were made with
 * these options may outlive them. */
__attribute__((visibility("default"))) OrtStatus *RegisterCustomOps(OrtOptions *options,
                                                                    const OrtBase *base);

OrtStatus *RegisterCustomOps(OrtOptions *options, const OrtBase *base) {
  OrtTable table = base->table(ORT_TABLE);
  if (!table) {
    OrtTable oldest = base->table(1);
    fprintf(stderr, "@NAME@: ONNX Runtime %s is too old: 1.17 is needed\n", base->version());
    return oldest ? failed(oldest, "@NAME@: ONNX Runtime 1.17 or later is needed") : NULL;
  }
  OrtDomain *domain = NULL;
  OrtStatus *s = ORT(CREATE_DOMAIN, ort_domain *)("@DOMAIN@", &domain);
  if (!s) s = ORT(DOMAIN_ADD, ort_domain_add *)(domain, &operator_);
  if (!s) s = ORT(OPTIONS_ADD, ort_options_add *)(options, domain);
  return s;
}
