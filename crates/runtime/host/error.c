/* Fills in an error: its place and a one-line text. error.h has the type. */
#include "error.h"
#include <stdarg.h>
#include <stdio.h>

int rt_fail(rt_error *e, const char *where, const char *format, ...) {
  va_list a;
  va_start(a, format);
  vsnprintf(e->text, sizeof e->text, format, a);
  va_end(a);
  /* An error is one line of a reply. */
  for (char *c = e->text; *c; c++)
    if ((unsigned char)*c < ' ') *c = ' ';
  e->where = where;
  return 0;
}
