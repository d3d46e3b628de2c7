/* What went wrong, in words. Every function of the library that can fail takes an rt_error, returns
 * 0 (or NULL) after it has filled it, and 1 otherwise. */
#ifndef SQUALL_ERROR_H
#define SQUALL_ERROR_H

typedef struct {
  const char *where; /* launch wrong damage memory file fault device build plan version */
  char text[700];
} rt_error;

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int rt_fail(rt_error *e, const char *where, const char *format, ...);

#endif
