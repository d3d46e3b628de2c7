/* A model: a network that is ready to run, a plan with the addresses of everything that its
 * steps touch. It is never written after it was opened, so that threads share it. All that a run
 * writes lies in a workspace, which the caller gives, at the same offsets in each run. */
#ifndef SQUALL_MODEL_H
#define SQUALL_MODEL_H
#include "call.h"
#include "moves.h"

/* Where a buffer lies: at an address that is the same for all runs, or at an offset in the memory
 * that a run finds at a base. Base 0 is the workspace. The others are inputs and outputs: each is
 * the caller's own memory, less the offset of the port, or the workspace where it is copied. */
typedef struct {
  const unsigned char *at; /* NULL where it lies at a base */
  uint64_t offset;
  uint32_t base;
} rt_address;

/* A boolean, and what it has to be. */
typedef struct {
  rt_address flag;
  int is;
} rt_condition;

typedef struct {
  rt_step_kind kind;
  uint32_t condition_count;
  const rt_condition *conditions; /* where one does not hold, the step does nothing */
  rt_run_function *run;       /* of a call */
  uint32_t data_count, output_count;
  const rt_address *operands; /* data, then outputs */
  rt_address prepared, workspace;
  int is_prepared, has_workspace;
  rt_address from, to; /* of a move */
  rt_move move;
} rt_instruction;

/* What comes from the caller, or goes to it. */
typedef struct {
  rt_address place; /* its base is 0 where it is always copied */
  size_t bytes;
  size_t element; /* bytes of one, which addresses of the caller are multiples of */
  char type;
  int is_part; /* an input that is copied into the memory of an output */
  int grown; /* it is a record of what it holds: RT_RECORD words */
} rt_port;

typedef struct {
  rt_plan plan;
  rt_instruction *instructions; /* one a step */
  rt_port *inputs, *outputs;
  uint32_t input_count, output_count;
  size_t workspace_bytes;
  rt_address *buffers, *operands;
  rt_condition *conditions;
} rt_model;

/* The most bases of a model: what a network has of inputs and outputs beyond them is copied. */
enum { RT_ALIGNMENT = 64, RT_BASES = 256 };

/* Takes a plan over. `contents` has the memory of each region that holds constants or prepared
 * weights, `runs` the function of each kernel; both must outlive the model. */
int rt_model_open(rt_model *m, rt_plan *plan, const void *const *contents,
                  rt_run_function *const *runs, rt_error *e);
void rt_model_close(rt_model *m);

#endif
