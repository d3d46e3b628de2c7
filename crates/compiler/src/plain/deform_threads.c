/* The body of DeformConv on a GPU, of two loops. Threads of the first fetch the elements that the
   window samples: row (c * TAPS + k) of an image's columns has, for each place of the result,
   the element of channel c under element k of the window. A thread finds the place and the weights
   once for up to SOME channels. Threads of the second multiply these rows by the filters: each
   makes RESULTS filters' results at PLACES places, which lie 32 apart so that the threads of a
   warp read neighbours. A thread whose filters or places lie behind the last one computes the
   last one again in their place and does not store it. */
  for (long b = 0; b < BATCH; b++)
  for (long g = 0; g < OFFSETS; g++)
  for (long part = 0; part < PARTS; part++)
  for (long ky = 0; ky < KH; ky++)
  for (long kx = 0; kx < KW; kx++)
  for (long r = 0; r < ROWS; r++)
  for (long q = 0; q < COLUMNS; q++) {
    const long k = ky * KW + kx, at = r * COLUMNS + q;
    const T2 *o = x2 + ((b * OFFSETS + g) * TAPS + k) * 2 * POINTS + at;
    const R v = C(r * SH - PH + ky * DH) + o[0], u = C(q * SW - PW + kx * DW) + o[POINTS];
    const int is_inside = v > -1 && v < C(HEIGHT) && u > -1 && u < C(WIDTH);
    R factor = 0, lv = 0, lu = 0;
    long y = 0, z = 0;
    if (is_inside) {
      const R fv = F(floor)(v), fu = F(floor)(u);
      factor = FACTOR, lv = v - fv, lu = u - fu, y = (long)fv, z = (long)fu;
    }
    for (long i = part * SOME; i < (part + 1) * SOME && i < SHARE; i++) {
      const long c = g * SHARE + i;
      const T0 *x = x0 + (b * CHANNELS + c) * HEIGHT * WIDTH;
      R s = 0;
      if (is_inside) {
        if (y >= 0 && z >= 0) s += (1 - lv) * (1 - lu) * x[y * WIDTH + z];
        if (y >= 0 && z + 1 < WIDTH) s += (1 - lv) * lu * x[y * WIDTH + z + 1];
        if (y + 1 < HEIGHT && z >= 0) s += lv * (1 - lu) * x[(y + 1) * WIDTH + z];
        if (y + 1 < HEIGHT && z + 1 < WIDTH) s += lv * lu * x[(y + 1) * WIDTH + z + 1];
        s *= factor;
      }
      columns[((b * CHANNELS + c) * TAPS + k) * POINTS + at] = s;
    }
  }
  for (long b = 0; b < BATCH; b++)
  for (long block = 0; block < BLOCKS; block++)
  for (long group = 0; group < GROUPS; group++)
  for (long tile = 0; tile < TILES; tile++)
  for (long lane = 0; lane < 32; lane++) {
    const long first = block * 32 * PLACES + lane;
    if (first >= POINTS) continue;
    const R *from = columns + (b * CHANNELS + group * INS) * TAPS * POINTS;
    const T1 *filters[RESULTS];
    long places[PLACES];
    R sums[RESULTS][PLACES];
    for (long n = 0; n < PLACES; n++)
      places[n] = first + n * 32 < POINTS ? first + n * 32 : POINTS - 1;
    for (long f = 0; f < RESULTS; f++) {
      const long own = tile * RESULTS + f < EACH ? tile * RESULTS + f : EACH - 1;
      const long m = group * EACH + own;
      filters[f] = x1 + m * DEPTH;
      for (long n = 0; n < PLACES; n++) sums[f][n] = BIAS;
    }
#pragma unroll 8
    for (long d = 0; d < DEPTH; d++) {
      R taken[PLACES];
      for (long n = 0; n < PLACES; n++) taken[n] = from[d * POINTS + places[n]];
      for (long f = 0; f < RESULTS; f++) {
        const R w = filters[f][d];
        for (long n = 0; n < PLACES; n++) sums[f][n] += w * taken[n];
      }
    }
    for (long f = 0; f < RESULTS; f++) {
      if (tile * RESULTS + f >= EACH) continue;
      Y0 *y = y0 + (b * OUTS + group * EACH + tile * RESULTS + f) * POINTS;
      for (long n = 0; n < PLACES; n++)
        if (first + n * 32 < POINTS) y[first + n * 32] = sums[f][n];
    }
  }
