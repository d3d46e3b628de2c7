/* Fourier transforms of `LENGTH` points, of up to `SIGNALS` signals side by side: after Stockham,
   sorted as they go, in passes of the factors of `LENGTH` (`FACTORS`, `PASSES` of them). Point n of
   signal l lies at [n * SIGNALS + l]; `turn` has cosine and sine of each LENGTH-th part of a turn;
   `sign` is -1 forward and 1 back. The result lies in `x`. */
static void fft_pass(long radix, long size, long run, double sign, const double *turn,
                     const double *restrict xr, const double *restrict xi, double *restrict yr,
                     double *restrict yi) {
  const long part = size / radix, step = LENGTH / size;
  for (long k = 0; k < part; k++) {
    const double *restrict ar = xr + k * run, *restrict ai = xi + k * run;
    double *restrict br = yr + k * radix * run, *restrict bi = yi + k * radix * run;
    const long apart = part * run;
    if (radix == 2) {
      const double c = turn[2 * k * step], s = sign * turn[2 * k * step + 1];
      for (long q = 0; q < run; q++) {
        const double ur = ar[q], ui = ai[q], vr = ar[q + apart], vi = ai[q + apart];
        const double dr = ur - vr, di = ui - vi;
        br[q] = ur + vr, bi[q] = ui + vi;
        br[q + run] = dr * c - di * s, bi[q + run] = dr * s + di * c;
      }
    } else if (radix == 4) {
      const double c1 = turn[2 * k * step], s1 = sign * turn[2 * k * step + 1];
      const double c2 = turn[4 * k * step], s2 = sign * turn[4 * k * step + 1];
      const double c3 = turn[6 * k * step], s3 = sign * turn[6 * k * step + 1];
      for (long q = 0; q < run; q++) {
        const double r0 = ar[q], r1 = ar[q + apart], r2 = ar[q + 2 * apart];
        const double r3 = ar[q + 3 * apart], i0 = ai[q], i1 = ai[q + apart];
        const double i2 = ai[q + 2 * apart], i3 = ai[q + 3 * apart];
        const double sr = r0 + r2, si = i0 + i2, tr = r1 + r3, ti = i1 + i3;
        const double ur = r0 - r2, ui = i0 - i2, vr = sign * (i1 - i3), vi = sign * (r1 - r3);
        const double pr = sr - tr, pi = si - ti;
        const double fr = ur - vr, fi = ui + vi, gr = ur + vr, gi = ui - vi;
        br[q] = sr + tr, bi[q] = si + ti;
        br[q + run] = fr * c1 - fi * s1, bi[q + run] = fr * s1 + fi * c1;
        br[q + 2 * run] = pr * c2 - pi * s2, bi[q + 2 * run] = pr * s2 + pi * c2;
        br[q + 3 * run] = gr * c3 - gi * s3, bi[q + 3 * run] = gr * s3 + gi * c3;
      }
    } else {
      for (long r = 0; r < radix; r++) {
        double *tr = br + r * run, *ti = bi + r * run;
        const double c = turn[2 * (k * r * step)], s = sign * turn[2 * (k * r * step) + 1];
        for (long q = 0; q < run; q++) tr[q] = ar[q], ti[q] = ai[q];
        for (long j = 1; j < radix; j++) {
          const long w = j * r % radix * (LENGTH / radix);
          const double wc = turn[2 * w], ws = sign * turn[2 * w + 1];
          const double *ur = ar + j * apart, *ui = ai + j * apart;
          for (long q = 0; q < run; q++) {
            tr[q] += ur[q] * wc - ui[q] * ws;
            ti[q] += ur[q] * ws + ui[q] * wc;
          }
        }
        for (long q = 0; q < run; q++) {
          const double re = tr[q], im = ti[q];
          tr[q] = re * c - im * s, ti[q] = re * s + im * c;
        }
      }
    }
  }
}
static void fft(double sign, const double *turn, double *xr, double *xi, double *yr, double *yi) {
  long size = LENGTH, run = SIGNALS;
  double *ar = xr, *ai = xi, *br = yr, *bi = yi;
  for (long pass = 0; pass < PASSES; pass++) {
    double *r = ar, *i = ai;
    fft_pass(FACTORS[pass], size, run, sign, turn, ar, ai, br, bi);
    size /= FACTORS[pass], run *= FACTORS[pass];
    ar = br, ai = bi, br = r, bi = i;
  }
  if (ar == xr) return;
  memcpy(xr, ar, sizeof(double) * LENGTH * SIGNALS);
  memcpy(xi, ai, sizeof(double) * LENGTH * SIGNALS);
}
