/* The test cases of `compare.c`: for each generated function its usual build, an independent
 * build, and the types and sizes of operands and results. `trust/mod.rs` writes the table of
 * cases. */
#ifndef SQUALL_CASES_H
#define SQUALL_CASES_H
#include <stddef.h>

typedef int check_function(const void *const *, void *const *, const void *, void *);
typedef int check_preparation(const void *const *, void *);

typedef struct {
  char type;          /* the type's letter, as in plans */
  long long count;    /* elements */
  long long constant; /* where its elements stand, if they are always the same; else below 0 */
  long long low, high; /* the whole numbers that it is made for; none where low is more than high */
  int weight; /* whether the function packs it ahead of its call, which does not read it */
  int grown; /* whether a result is a record of memory and extents; the type is the elements' */
} check_operand;

typedef struct {
  check_function *usual, *independent;
  check_preparation *usual_preparation, *independent_preparation; /* null: none is packed */
  const check_operand *in;
  int operands;
  const check_operand *out;
  int results;
  size_t scratch, prepared;
  int has_whole;   /* whether operands have whole numbers that are not always the same */
  long long least; /* the least extent of all operands */
  int is_region; /* whether its memory grows as it runs, and data may decide when it ends */
} check_case;

extern const check_case check_cases[];
extern const int check_count;
#endif
