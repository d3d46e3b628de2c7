/* The body of DeformConv on a CPU: of 64 places at a time, all elements that the window samples lie
   in a panel, which the filters multiply. */
  for (long b = 0; b < BATCH; b++)
  for (long first = 0; first < POINTS; first += 64)
  for (long group = 0; group < GROUPS; group++) {
    const long count = POINTS - first < 64 ? POINTS - first : 64;
    for (long k = 0; k < KH * KW; k++) {
      int places[4][64];
      float weights[4][64], factors[64];
      long known = -1;
      int is_inside = 0;
      for (long i = 0; i < INS; i++) {
        const long c = group * INS + i, g = c / SHARE;
        if (g != known) {
          const T2 *o = x2 + ((b * OFFSETS + g) * KH * KW + k) * 2 * POINTS;
          for (long n = 0; n < 64; n++) {
            for (int t = 0; t < 4; t++) places[t][n] = -1, weights[t][n] = 0;
            factors[n] = 0;
          }
          for (long n = 0; n < count; n++) {
            const long at = first + n, r = at / COLUMNS, q = at % COLUMNS;
            const float v = C(r * SH - PH + k / KW * DH) + o[at];
            const float u = C(q * SW - PW + k % KW * DW) + o[POINTS + at];
            factors[n] = FACTOR;
            if (!(v > -1 && v < C(HEIGHT) && u > -1 && u < C(WIDTH))) {
              factors[n] = 0;
              continue;
            }
            const float fv = floorf(v), fu = floorf(u), lv = v - fv, lu = u - fu;
            const int y = (int)fv, z = (int)fu, place = y * (int)WIDTH + z;
            if (y >= 0 && z >= 0) places[0][n] = place;
            if (y >= 0 && z + 1 < WIDTH) places[1][n] = place + 1;
            if (y + 1 < HEIGHT && z >= 0) places[2][n] = place + (int)WIDTH;
            if (y + 1 < HEIGHT && z + 1 < WIDTH) places[3][n] = place + (int)WIDTH + 1;
            weights[0][n] = (1 - lv) * (1 - lu), weights[1][n] = (1 - lv) * lu;
            weights[2][n] = lv * (1 - lu), weights[3][n] = lv * lu;
          }
          known = g;
          is_inside = 1;
          for (int t = 0; t < 4; t++)
            for (long n = 0; n < count; n++) is_inside &= places[t][n] >= 0;
          for (int t = 0; t < 4; t++)
            for (long n = count; is_inside && n < 64; n++) places[t][n] = 0;
        }
        const T0 *x = x0 + (b * CHANNELS + c) * HEIGHT * WIDTH;
        float *to = panel + (i * KH * KW + k) * 64;
        if (is_inside) {
          for (long n = 0; n < 64; n++) {
            const float *e = x + places[0][n], *f = x + places[2][n];
            const float s = weights[0][n] * e[0] + weights[1][n] * x[places[1][n]];
            to[n] = (s + weights[2][n] * f[0] + weights[3][n] * x[places[3][n]]) * factors[n];
          }
          continue;
        }
        for (long n = 0; n < 64; n++) {
          float s = 0;
          for (int t = 0; t < 4; t++)
            if (places[t][n] >= 0) s += weights[t][n] * x[places[t][n]];
          to[n] = s * factors[n];
        }
      }
    }
    panel_products(x1 + group * EACH * DEPTH, EACH, panel, DEPTH, BEGIN,
                   y0 + (b * OUTS + group * EACH) * POINTS + first, POINTS, count);
  }
