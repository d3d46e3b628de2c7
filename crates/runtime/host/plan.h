/* A plan: what is run, on which memory, in which order, as C types. docs/plan-format.md
 * describes the text. plan.c reads it, and verify.c refuses a plan whose parts do not fit
 * together, so that the code that runs a plan need not check. */
#ifndef SQUALL_PLAN_H
#define SQUALL_PLAN_H
#include "element.h"
#include "error.h"
#include "launch.h"
#include <stddef.h>
#include <stdint.h>

enum { RT_PLAN_VERSION = 2, RT_AXES = 32, RT_PARAMETERS = 512, RT_ARGUMENTS = 1024, RT_MAPS = 8 };
#define RT_NONE UINT32_MAX
#define RT_MOST_BYTES ((uint64_t)1 << 62)

typedef enum {
  RT_DATA,
  RT_WEIGHT,
  RT_OUTPUT,
  RT_SCRATCH,
  RT_CONSTANT,
  RT_PREPARED,
  RT_WORKSPACE
} rt_role;

/* Memory that buffers share. */
typedef struct {
  rt_role role; /* scratch, constant, weight or prepared */
  uint64_t bytes;
  const char *file; /* that holds its content from byte `at` on, or NULL */
  uint64_t at;
} rt_region;

typedef struct {
  rt_role role;
  rt_tensor is;
  uint32_t region; /* that it lies in, from `offset` on, or RT_NONE */
  uint64_t offset;
  uint32_t of; /* the input or output whose memory it is a part of, or RT_NONE */
  uint64_t value_count;  /* of a constant whose elements the plan itself holds, or 0 */
  const int64_t *values;
} rt_buffer;

typedef struct {
  rt_role role; /* data, weight or output */
  char type;
  uint64_t count;
} rt_parameter;

typedef struct {
  const char *symbol, *library; /* NULL where it is linked in */
  int cuda;
  uint64_t prepared, workspace; /* bytes */
  uint32_t number_count;        /* of the library's array, which loading fills with `numbers` */
  const uint64_t *numbers;
  uint32_t parameter_count, launch_count, data_count, weight_count, output_count;
  const rt_parameter *parameters;
  const rt_launch *launches;
} rt_kernel;

typedef struct {
  uint64_t extent, to;
  int64_t from;
} rt_axis;

typedef enum { RT_CALL, RT_COPY, RT_RUNS, RT_FILL } rt_step_kind;

typedef struct {
  rt_step_kind kind;
  const char *name;
  uint32_t kernel;         /* of a call */
  const uint64_t *buffers; /* of a call: one a parameter, then prepared memory, then workspace */
  uint32_t from, to;       /* buffers of a move */
  uint64_t from_at, to_at; /* elements */
  uint32_t rank;
  const rt_axis *axes; /* outermost first */
  uint64_t count;       /* of runs, or elements of a fill */
  const uint64_t *runs; /* target, source, length of each */
  uint32_t condition_count;
  const uint64_t *conditions; /* a buffer that begins with a boolean, and what it has to be, each */
  unsigned char value[8]; /* of a fill: the bytes that an element gets */
  uint32_t value_bytes;
} rt_step;

typedef struct {
  rt_region *regions;
  rt_buffer *buffers;
  rt_kernel *kernels;
  rt_step *steps;
  uint32_t region_count, buffer_count, kernel_count, step_count;
  void *memory; /* that all of it lies in */
} rt_plan;

/* Reads a plan of `length` bytes; the text is copied. */
int rt_plan_read(const char *text, size_t length, rt_plan *plan, rt_error *e);
/* Reads a plan from a file. */
int rt_plan_open(const char *path, rt_plan *plan, rt_error *e);
void rt_plan_close(rt_plan *plan);

/* Whether the parts of a plan fit together; rt_plan_read has asked it. In verify.c. */
int rt_plan_verify(const rt_plan *plan, rt_error *e);
/* How much is copied to an output that a launch restores. */
uint64_t rt_restored_bytes(const rt_kernel *k, const rt_argument *a);

#endif
