/* y = a x + y, to begin with: CHUNK elements at a time, unrolled UNROLL times. */
#define PRAGMA(words) _Pragma(#words)
#define UNROLLED(times) PRAGMA(GCC unroll times)

void axpy(long long n, float a, const float *restrict x, float *restrict y) {
  for (long long start = 0; start < n; start += CHUNK) {
    long long end = start + CHUNK < n ? start + CHUNK : n;
    UNROLLED(UNROLL)
    for (long long i = start; i < end; i++) y[i] += a * x[i];
  }
}

/* What is right: the loop before any tuning. */
void plain(long long n, float a, const float *restrict x, float *restrict y) {
  for (long long i = 0; i < n; i++) y[i] += a * x[i];
}
