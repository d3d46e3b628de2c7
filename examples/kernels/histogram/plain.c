/* A histogram of bytes as one would write it first. */
#include <stdint.h>

void plain(int64_t n, const uint8_t *restrict x, int32_t *restrict count) {
  for (int v = 0; v < 256; v++) count[v] = 0;
  for (int64_t i = 0; i < n; i++) count[x[i]]++;
}
