/* The error of a failed call, in words. Every function of the library that can fail takes an
 * rt_error, fills it and returns 0 (or NULL) on failure, and returns 1 otherwise. */
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
