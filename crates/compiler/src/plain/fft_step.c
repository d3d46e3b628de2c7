/* One step of a Fourier transform on a GPU, in a thread's own numbers: the transform of `radix`
   points in place, which then turn by k-fold multiples of `step`. `turn` has cosine and sine of
   each LENGTH-th part of a turn; `sign` is -1 forward and 1 back. The arithmetic is that of
   `fft.c`, so that infinities make the same results. */
static inline void fft_step(long radix, long k, long step, double sign, const double *turn,
                            double *re, double *im) {
  if (radix == 2) {
    const double c = turn[2 * k * step], s = sign * turn[2 * k * step + 1];
    const double dr = re[0] - re[1], di = im[0] - im[1];
    re[0] = re[0] + re[1], im[0] = im[0] + im[1];
    re[1] = dr * c - di * s, im[1] = dr * s + di * c;
  } else if (radix == 4) {
    const double c1 = turn[2 * k * step], s1 = sign * turn[2 * k * step + 1];
    const double c2 = turn[4 * k * step], s2 = sign * turn[4 * k * step + 1];
    const double c3 = turn[6 * k * step], s3 = sign * turn[6 * k * step + 1];
    const double sr = re[0] + re[2], si = im[0] + im[2], tr = re[1] + re[3], ti = im[1] + im[3];
    const double ur = re[0] - re[2], ui = im[0] - im[2];
    const double vr = sign * (im[1] - im[3]), vi = sign * (re[1] - re[3]);
    const double pr = sr - tr, pi = si - ti;
    const double fr = ur - vr, fi = ui + vi, gr = ur + vr, gi = ui - vi;
    re[0] = sr + tr, im[0] = si + ti;
    re[1] = fr * c1 - fi * s1, im[1] = fr * s1 + fi * c1;
    re[2] = pr * c2 - pi * s2, im[2] = pr * s2 + pi * c2;
    re[3] = gr * c3 - gi * s3, im[3] = gr * s3 + gi * c3;
  } else if (radix > 1) {
    double tr[8], ti[8];
    for (long r = 0; r < radix; r++) {
      const double c = turn[2 * k * r * step], s = sign * turn[2 * k * r * step + 1];
      double a = re[0], b = im[0];
      for (long j = 1; j < radix; j++) {
        const long w = j * r % radix * (LENGTH / radix);
        const double wc = turn[2 * w], ws = sign * turn[2 * w + 1];
        a += re[j] * wc - im[j] * ws;
        b += re[j] * ws + im[j] * wc;
      }
      tr[r] = a * c - b * s, ti[r] = a * s + b * c;
    }
    for (long r = 0; r < radix; r++) re[r] = tr[r], im[r] = ti[r];
  }
}
