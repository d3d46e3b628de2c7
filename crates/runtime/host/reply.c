/* Puts together the runner's replies, and writes them whole. */
#define _GNU_SOURCE
#include "reply.h"
#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

void rt_say(rt_runner *r, const char *format, ...) {
  va_list a;
  va_start(a, format);
  int n = vsnprintf(r->reply + r->length, sizeof r->reply - r->length, format, a);
  va_end(a);
  if (n > 0) r->length += (size_t)n;
  if (r->length >= sizeof r->reply) r->length = sizeof r->reply - 1;
}

void rt_send(int out, const char *text, size_t length) {
  while (length > 0) {
    ssize_t n = write(out, text, length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);
    text += n;
    length -= (size_t)n;
  }
}
