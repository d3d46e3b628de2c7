/* Plans over ranges of extents: a plan's text in which `$K` stands for numbers that follow from
 * extents by formulas. docs/plan-format.md describes the text. */
#ifndef SQUALL_VARYING_H
#define SQUALL_VARYING_H
#include <stddef.h>
#include <stdint.h>

enum { RT_SYMBOLS = 8, RT_FORMULA_WORDS = 64 };

/* What became of a text. */
typedef enum {
  RT_VARYING_FINE,
  RT_VARYING_OUTSIDE, /* an extent is not one of its symbol's */
  RT_VARYING_WRONG,   /* it is no such text, or a formula has no value */
  RT_VARYING_MEMORY   /* there is not enough memory */
} rt_varying;

/* Whether a text is a plan over a range. */
int rt_varying_is(const char *text, size_t length);
/* How many symbols it has, and the largest extent of each. */
uint32_t rt_varying_most(const char *text, size_t length, int64_t most[RT_SYMBOLS]);
/* The text of the plan at some extents, one a symbol, in memory of malloc. */
rt_varying rt_varying_text(const char *text, size_t length, const int64_t *extents, char **to,
                           size_t *bytes);

#endif
