/* How often each byte occurs. COPIES tables take turns, so that equal bytes in a row do not wait
 * for one another's counts; `step` bytes are read between two sums of the tables. */
#include <stdint.h>
#include <string.h>

void histogram(int64_t n, const uint8_t *restrict x, int32_t *restrict count, int64_t step) {
  static int32_t table[COPIES][256 + PADDING];
  memset(count, 0, 256 * sizeof *count);
  for (int64_t start = 0; start < n; start += step) {
    int64_t end = start + step < n ? start + step : n, i = start;
    memset(table, 0, sizeof table);
    for (; i + COPIES <= end; i += COPIES)
#pragma GCC unroll 16
      for (int c = 0; c < COPIES; c++) table[c][x[i + c]]++;
    for (; i < end; i++) table[0][x[i]]++;
    for (int c = 0; c < COPIES; c++)
      for (int v = 0; v < 256; v++) count[v] += table[c][v];
  }
}
