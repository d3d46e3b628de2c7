/* The body of DeformConv, a result at a time. */
  for (long b = 0; b < BATCH; b++)
  for (long m = 0; m < OUTS; m++)
  for (long r = 0; r < ROWS; r++)
  for (long q = 0; q < COLUMNS; q++) {
    const long at = r * COLUMNS + q;
    R sum = BIAS;
    for (long i = 0; i < INS; i++) {
      const long c = m / EACH * INS + i, g = c / SHARE;
      const T0 *x = x0 + (b * CHANNELS + c) * HEIGHT * WIDTH;
      for (long k = 0; k < KH * KW; k++) {
        const T2 *o = x2 + ((b * OFFSETS + g) * KH * KW + k) * 2 * ROWS * COLUMNS + at;
        const R v = C(r * SH - PH + k / KW * DH) + o[0];
        const R u = C(q * SW - PW + k % KW * DW) + o[ROWS * COLUMNS];
        if (!(v > -1 && v < C(HEIGHT) && u > -1 && u < C(WIDTH))) continue;
        const R fv = F(floor)(v), fu = F(floor)(u), lv = v - fv, lu = u - fu;
        const long y = (long)fv, z = (long)fu;
        R s = 0;
        if (y >= 0 && z >= 0) s += (1 - lv) * (1 - lu) * x[y * WIDTH + z];
        if (y >= 0 && z + 1 < WIDTH) s += (1 - lv) * lu * x[y * WIDTH + z + 1];
        if (y + 1 < HEIGHT && z >= 0) s += lv * (1 - lu) * x[(y + 1) * WIDTH + z];
        if (y + 1 < HEIGHT && z + 1 < WIDTH) s += lv * lu * x[(y + 1) * WIDTH + z + 1];
        sum += s * x1[(m * INS + i) * KH * KW + k] * FACTOR;
      }
    }
    y0[(b * OUTS + m) * ROWS * COLUMNS + at] = sum;
  }
