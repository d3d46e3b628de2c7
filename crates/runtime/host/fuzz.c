/* The program with which a test feeds arbitrary bytes to the plan reader in C. Input, any number
 * of times: a length in 4 bytes, lowest first, and a text; output: a line, "plan" or the error.
 * Compiled with sanitizers. */
#include "runtime.c"

int main(void) {
  unsigned char head[4];
  while (fread(head, 1, sizeof head, stdin) == sizeof head) {
    size_t length = head[0] | head[1] << 8 | head[2] << 16 | (size_t)head[3] << 24;
    /* No byte more than the text, so that reading over its end shows. */
    char *text = malloc(length ? length : 1);
    rt_error error = {0};
    rt_plan plan;
    if (!text || fread(text, 1, length, stdin) != length) return 2;
    int fine = rt_plan_read(text, length, &plan, &error);
    printf("%s\n", fine ? "plan" : error.text);
    if (fine) rt_plan_close(&plan);
    free(text);
  }
  return 0;
}
