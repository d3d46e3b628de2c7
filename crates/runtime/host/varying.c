/* Makes the text of a plan at some extents of one over a range: evaluates its formulas, which are
 * in postfix order, and writes their values in the place of `$K`. */
#include "varying.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char head[] = "squall varying 1\n";

/* A line of a text that has not been read. */
typedef struct {
  const char *at, *end;
} lines;

/* The next line without its end, or NULL. */
static const char *next_line(lines *l, size_t *length) {
  const char *line = l->at;
  const char *end = line < l->end ? memchr(line, '\n', (size_t)(l->end - line)) : NULL;
  if (!end) return NULL;
  *length = (size_t)(end - line);
  l->at = end + 1;
  return line;
}

static int begins(const char *line, size_t length, const char *with) {
  size_t n = strlen(with);
  return length >= n && memcmp(line, with, n) == 0;
}

/* Reads a whole number from `at`, and moves behind it. */
static int whole(const char **at, const char *end, int64_t *to) {
  const char *p = *at;
  int negative = p < end && *p == '-';
  uint64_t value = 0;
  p += negative;
  if (p == end || *p < '0' || *p > '9') return 0;
  for (; p < end && *p >= '0' && *p <= '9'; p++) {
    uint64_t digit = (uint64_t)(*p - '0');
    if (value > ((uint64_t)INT64_MAX - digit) / 10) return 0;
    value = 10 * value + digit;
  }
  *to = negative ? -(int64_t)value : (int64_t)value;
  *at = p;
  return 1;
}

/* Applies an operator to two numbers; 0 where the result leaves 64 bits. */
static int applied(char operator, int64_t a, int64_t b, int64_t *to) {
  switch (operator) {
  case '+': return !__builtin_add_overflow(a, b, to);
  case '-': return !__builtin_sub_overflow(a, b, to);
  case '*': return !__builtin_mul_overflow(a, b, to);
  case '<': *to = a < b; return 1;
  case '/':
    if (b <= 0) return 0;
    *to = a / b - (a % b < 0);
    return 1;
  default: return 0;
  }
}

/* The value of a formula. */
static int value_of(const char *at, const char *end, const int64_t *extents, uint32_t symbols,
                    int64_t *to) {
  int64_t stack[RT_FORMULA_WORDS + 1];
  size_t depth = 0;
  while (at < end) {
    int64_t n;
    if (depth > RT_FORMULA_WORDS) return 0;
    if (*at == 's') {
      at++;
      if (!whole(&at, end, &n) || n < 0 || n >= (int64_t)symbols) return 0;
      stack[depth++] = extents[n];
    } else if ((*at >= '0' && *at <= '9') || (*at == '-' && at + 1 < end && at[1] != ' ')) {
      if (!whole(&at, end, &n)) return 0;
      stack[depth++] = n;
    } else {
      if (depth < 2 || !applied(*at, stack[depth - 2], stack[depth - 1], &n)) return 0;
      stack[--depth - 1] = n;
      at++;
    }
    if (at < end && *at++ != ' ') return 0;
  }
  if (depth != 1) return 0;
  *to = stack[0];
  return 1;
}

/* Reads `symbol LEAST MOST STEP NAME`. */
static int symbol_of(const char *line, size_t length, int64_t of[3]) {
  const char *at = line + strlen("symbol "), *end = line + length;
  for (int i = 0; i < 3; i++)
    if (!whole(&at, end, &of[i]) || at == end || *at++ != ' ') return 0;
  return of[2] > 0;
}

int rt_varying_is(const char *text, size_t length) { return begins(text, length, head); }

uint32_t rt_varying_most(const char *text, size_t length, int64_t most[RT_SYMBOLS]) {
  lines l = {text, text + length};
  size_t size;
  uint32_t count = 0;
  for (const char *line; (line = next_line(&l, &size)) != NULL && count < RT_SYMBOLS;) {
    int64_t of[3];
    if (!begins(line, size, "symbol ")) {
      if (count) break;
      continue;
    }
    if (!symbol_of(line, size, of)) break;
    most[count++] = of[1] / of[2] * of[2];
  }
  return count;
}

/* Writes a text with values in the place of `$K`; `to` has room. */
static int put_values(const char *at, const char *end, const int64_t *values, size_t count,
                      char *to, size_t *bytes) {
  char *out = to;
  while (at < end) {
    if (*at != '$') {
      *out++ = *at++;
      continue;
    }
    at++;
    if (at < end && *at == '$') {
      *out++ = *at++;
      continue;
    }
    int64_t k;
    if (!whole(&at, end, &k) || k < 0 || (uint64_t)k >= count) return 0;
    out += sprintf(out, "%lld", (long long)values[k]);
  }
  *bytes = (size_t)(out - to);
  return 1;
}

rt_varying rt_varying_text(const char *text, size_t length, const int64_t *extents, char **to,
                           size_t *bytes) {
  lines l = {text, text + length};
  size_t size, count = 0, room = 0, most = 1;
  uint32_t symbols = 0;
  *to = NULL;
  /* A `$K` is replaced by at most 20 digits and a sign. */
  for (size_t i = 0; i < length; i++) {
    room += text[i] == '$' ? 24 : 1;
    most += text[i] == '\n';
  }
  int64_t *values = malloc(most * sizeof *values);
  char *out = malloc(room + 1);
  rt_varying done = values && out ? RT_VARYING_WRONG : RT_VARYING_MEMORY;
  const char *line = next_line(&l, &size);
  while (done == RT_VARYING_WRONG && line) {
    const char *body = l.at;
    line = next_line(&l, &size);
    if (!line) break;
    if (begins(line, size, "symbol ") && symbols < RT_SYMBOLS) {
      int64_t of[3], n = extents[symbols++];
      if (!symbol_of(line, size, of)) break;
      if (n < of[0] || n > of[1] || n % of[2]) done = RT_VARYING_OUTSIDE;
    } else if (begins(line, size, "value ")) {
      if (!value_of(line + strlen("value "), line + size, extents, symbols, &values[count])) break;
      count++;
    } else {
      if (put_values(body, l.end, values, count, out, bytes)) done = RT_VARYING_FINE;
      break;
    }
  }
  free(values);
  if (done == RT_VARYING_FINE) *to = out;
  else free(out);
  return done;
}
