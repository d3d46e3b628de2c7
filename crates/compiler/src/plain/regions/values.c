/* What regions compute with (plain/regions/mod.rs): values whose extents only the run knows. */
#include <stdlib.h>
/* A value of which only the run knows the extents. Memory of its own has room, borrowed none. */
typedef struct {
  void *data;
  long rank, count, dims[32];
  size_t room;
} squall_v;
typedef struct {
  long count, at[64];
} squall_list;

static inline int v_room(squall_v *v, size_t bytes) {
  if (v->room >= bytes + 64) return 0;
  size_t room = bytes + bytes / 2 + 64;
  void *data = v->room ? realloc(v->data, room) : malloc(room);
  if (!data) return 1;
  v->data = data, v->room = room;
  return 0;
}
static inline void v_drop(squall_v *v) {
  if (v->room) free(v->data);
  v->data = 0, v->room = 0;
}
/* Gives a value extents; 1 where they are none. */
static inline int v_dims(squall_v *v, long rank, const long *dims) {
  long count = 1, wide = 1;
  if (rank > 32) return 1;
  for (long i = 0; i < rank; i++) {
    if (dims[i] < 0 || (dims[i] > 0 && wide > (1L << 40) / dims[i])) return 1;
    wide *= dims[i] ? dims[i] : 1, count *= dims[i];
  }
  for (long i = 0; i < rank; i++) v->dims[i] = dims[i];
  v->rank = rank, v->count = count;
  return 0;
}
static inline int v_new(squall_v *v, long rank, const long *dims, size_t size) {
  return v_dims(v, rank, dims) || v_room(v, (size_t)v->count * size);
}
static inline void v_borrow(squall_v *v, const void *data) { v->data = (void *)data, v->room = 0; }
static inline int v_copy(squall_v *to, const squall_v *x, size_t size) {
  if (v_new(to, x->rank, x->dims, size)) return 1;
  if (x->count) memcpy(to->data, x->data, (size_t)x->count * size);
  return 0;
}
static inline void v_swap(squall_v *a, squall_v *b) {
  squall_v t = *a;
  *a = *b, *b = t;
}
static inline int v_same(const squall_v *a, const squall_v *b) {
  if (a->rank != b->rank) return 0;
  for (long i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i]) return 0;
  return 1;
}
static inline int v_is(const squall_v *v, long rank, const long *dims) {
  if (v->rank != rank) return 0;
  for (long i = 0; i < rank; i++)
    if (v->dims[i] != dims[i]) return 0;
  return 1;
}
/* Floats of 16 bits, of IEEE's format or bfloat16 (`brain`), to the nearest, ties to even. */
static inline unsigned short v_half(float x, int brain) {
  unsigned u, a;
  memcpy(&u, &x, 4);
  const unsigned short sign = (unsigned short)(u >> 16 & 0x8000u);
  a = u & 0x7fffffffu;
  if (brain && a > 0x7f800000u) return (unsigned short)(u >> 16 | 0x40u);
  if (brain) return (unsigned short)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
  if (a > 0x7f800000u) return sign | 0x7e00u;
  if (a >= 0x477ff000u) return sign | 0x7c00u;
  if (a >= 0x38800000u) {
    a += 0xfffu + (a >> 13 & 1);
    return (unsigned short)(sign | (a - 0x38000000u) >> 13);
  }
  /* Denormals are whole multiples of the least one. */
  float wide;
  memcpy(&wide, &a, 4);
  return (unsigned short)(sign | (unsigned)rintf(wide * 16777216.0f));
}
static inline float v_float(unsigned short h, int brain) {
  const unsigned e = h >> 10 & 31, m = h & 1023u;
  unsigned u = (unsigned)(h & 0x8000u) << 16;
  float x;
  if (brain) u = (unsigned)h << 16;
  else if (e == 31) u |= 0x7f800000u | m << 13;
  else if (e) u |= (e + 112) << 23 | m << 13;
  else {
    const float small = (float)m / 16777216.0f;
    unsigned bits;
    memcpy(&bits, &small, 4);
    u |= bits;
  }
  memcpy(&x, &u, 4);
  return x;
}
static inline int v_narrow(squall_v *to, const squall_v *x, int brain) {
  if (v_new(to, x->rank, x->dims, 2)) return 1;
  for (long i = 0; i < x->count; i++)
    ((unsigned short *)to->data)[i] = v_half(((const float *)x->data)[i], brain);
  return 0;
}
static inline int v_widen(squall_v *to, const squall_v *x, int brain) {
  if (v_new(to, x->rank, x->dims, 4)) return 1;
  for (long i = 0; i < x->count; i++)
    ((float *)to->data)[i] = v_float(((const unsigned short *)x->data)[i], brain);
  return 0;
}
/* What follows from an extent in steps of `len`. */
static inline long v_follow(long n, long rise, long len, const long *at) {
  return rise * (n / len) + at[n % len];
}
/* The whole numbers of a vector. */
static inline int v_list(squall_list *l, const squall_v *v, size_t size) {
  if (v->count > 64) return 1;
  l->count = v->count;
  for (long i = 0; i < v->count; i++)
    l->at[i] = size == 8 ? (long)((const long long *)v->data)[i] : ((const int *)v->data)[i];
  return 0;
}
/* Copies a view: its steps are elements of the source. */
static inline void v_view(void *to, const void *from, long rank, const long *dims,
                          const long *steps, size_t size) {
  long at[32] = {0}, count = 1, inner = rank ? dims[rank - 1] : 1;
  long step = rank ? steps[rank - 1] : 0;
  for (long i = 0; i < rank; i++) count *= dims[i];
  if (count == 0) return;
  const unsigned char *f = from;
  unsigned char *t = to;
  for (;;) {
    if (step == 1) {
      memcpy(t, f, (size_t)inner * size);
      t += (size_t)inner * size;
    } else {
      const unsigned char *g = f;
      const long jump = step * (long)size;
      switch (size) {
        case 1: for (long i = 0; i < inner; i++, g += jump) *t++ = *g; break;
        case 4: for (long i = 0; i < inner; i++, g += jump, t += 4) memcpy(t, g, 4); break;
        case 8: for (long i = 0; i < inner; i++, g += jump, t += 8) memcpy(t, g, 8); break;
        default: for (long i = 0; i < inner; i++, g += jump, t += size) memcpy(t, g, size);
      }
    }
    long a = rank - 2;
    for (; a >= 0; a--) {
      f += steps[a] * (long)size;
      if (++at[a] < dims[a]) break;
      f -= steps[a] * dims[a] * (long)size, at[a] = 0;
    }
    if (a < 0) return;
  }
}
static inline void v_steps(const squall_v *x, long *steps) {
  long step = 1;
  for (long i = x->rank; i-- > 0; step *= x->dims[i]) steps[i] = step;
}
/* The extents to which operands are broadcast. */
static inline int v_broadcast(squall_v *to, long n, const squall_v *const *x, size_t size) {
  long rank = 0, dims[32];
  for (long k = 0; k < n; k++) rank = x[k]->rank > rank ? x[k]->rank : rank;
  for (long i = 0; i < rank; i++) dims[i] = 1;
  for (long k = 0; k < n; k++)
    for (long i = 0; i < x[k]->rank; i++) {
      long *d = &dims[rank - x[k]->rank + i], e = x[k]->dims[i];
      if (*d != e && *d != 1 && e != 1) return 1;
      if (*d == 1) *d = e;
    }
  return v_new(to, rank, dims, size);
}
/* An operand as broadcast to these extents; it stays where it is where it has them. */
static inline const void *v_spread(squall_v *room, const squall_v *x, const squall_v *like,
                                   size_t size) {
  long own[32], steps[32], skipped = like->rank - x->rank;
  if (v_same(x, like)) return x->data;
  if (skipped < 0 || v_room(room, (size_t)like->count * size)) return 0;
  v_steps(x, own);
  for (long i = 0; i < like->rank; i++)
    steps[i] = i < skipped || x->dims[i - skipped] == 1 ? 0 : own[i - skipped];
  v_view(room->data, x->data, like->rank, like->dims, steps, size);
  return room->data;
}
static inline int v_expand(squall_v *to, const squall_v *x, const squall_list *l, size_t size) {
  squall_v shape = {0};
  const squall_v *both[2] = {x, &shape};
  if (v_dims(&shape, l->count, l->at) || v_broadcast(to, 2, both, size)) return 1;
  squall_v room = {0};
  const void *from = v_spread(&room, x, to, size);
  if (!from && to->count) return 1;
  if (to->count) memcpy(to->data, from, (size_t)to->count * size);
  v_drop(&room);
  return 0;
}
static inline int v_as(squall_v *to, const squall_v *x, long rank, const long *dims, size_t size) {
  if (v_new(to, rank, dims, size) || to->count != x->count) return 1;
  if (x->count) memcpy(to->data, x->data, (size_t)x->count * size);
  return 0;
}
static inline int v_reshape(squall_v *to, const squall_v *x, const squall_list *l, int zeros,
                            size_t size) {
  long dims[64], rest = -1, count = 1;
  for (long i = 0; i < l->count; i++) {
    dims[i] = l->at[i];
    if (dims[i] == 0 && !zeros) {
      if (i >= x->rank) return 1;
      dims[i] = x->dims[i];
    }
    if (dims[i] == -1 && rest < 0) rest = i;
    else if (dims[i] < 0) return 1;
    else count *= dims[i];
  }
  if (rest >= 0) dims[rest] = count ? x->count / count : 0;
  return v_as(to, x, l->count, dims, size);
}
static inline int v_squeeze(squall_v *to, const squall_v *x, const squall_list *l, size_t size) {
  long dims[32], n = 0;
  unsigned gone = 0;
  for (long i = 0; i < (l ? l->count : 0); i++) {
    long a = l->at[i] < 0 ? l->at[i] + x->rank : l->at[i];
    if (a < 0 || a >= x->rank || x->dims[a] != 1) return 1;
    gone |= 1u << a;
  }
  for (long i = 0; i < x->rank; i++)
    if (l ? !(gone >> i & 1) : x->dims[i] != 1) dims[n++] = x->dims[i];
  return v_as(to, x, n, dims, size);
}
static inline int v_unsqueeze(squall_v *to, const squall_v *x, const squall_list *l, size_t size) {
  long dims[32], rank = x->rank + l->count, from = 0;
  unsigned made = 0;
  if (rank > 32) return 1;
  for (long i = 0; i < l->count; i++) {
    long a = l->at[i] < 0 ? l->at[i] + rank : l->at[i];
    if (a < 0 || a >= rank || (made >> a & 1)) return 1;
    made |= 1u << a;
  }
  for (long i = 0; i < rank; i++) dims[i] = made >> i & 1 ? 1 : x->dims[from++];
  return v_as(to, x, rank, dims, size);
}
static inline int v_slice(squall_v *to, const squall_v *x, const squall_list *starts,
                          const squall_list *ends, const squall_list *axes,
                          const squall_list *steps, size_t size) {
  long dims[32], own[32], by[32], from = 0;
  if (ends->count != starts->count || (axes && axes->count != starts->count) ||
      (steps && steps->count != starts->count))
    return 1;
  v_steps(x, own);
  for (long i = 0; i < x->rank; i++) dims[i] = x->dims[i], by[i] = own[i];
  for (long i = 0; i < starts->count; i++) {
    long a = axes ? axes->at[i] : i, step = steps ? steps->at[i] : 1;
    if (a < 0) a += x->rank;
    if (a < 0 || a >= x->rank || step == 0) return 1;
    long n = x->dims[a], s = starts->at[i], e = ends->at[i];
    if (s < 0) s += n;
    if (e < 0) e = e < -n ? -1 : e + n;
    if (step > 0) {
      s = s < 0 ? 0 : s > n ? n : s;
      e = e < 0 ? 0 : e > n ? n : e;
      dims[a] = e > s ? (e - s - 1) / step + 1 : 0;
    } else {
      s = s < 0 ? (n ? 0 : -1) : s > n - 1 ? n - 1 : s;
      e = e < -1 ? -1 : e > n - 1 ? n - 1 : e;
      const long most = 9223372036854775807L, by_one = step < -most ? most : -step;
      dims[a] = s > e ? (s - e - 1) / by_one + 1 : 0;
    }
    from += dims[a] ? s * own[a] : 0;
    by[a] = dims[a] > 1 ? own[a] * step : 0;
  }
  if (v_new(to, x->rank, dims, size)) return 1;
  const char *first = (const char *)x->data + from * (long)size;
  if (to->count) v_view(to->data, first, x->rank, dims, by, size);
  return 0;
}
/* A piece along an axis. */
static inline int v_piece(squall_v *to, const squall_v *x, long axis, long from, long count,
                          size_t size) {
  squall_list s = {1, {from}}, e = {1, {from + count}}, a = {1, {axis}};
  return from + count > x->dims[axis] || v_slice(to, x, &s, &e, &a, 0, size);
}
static inline int v_concat(squall_v *to, long n, const squall_v *const *x, long axis, size_t size) {
  long dims[32], outer = 1, inner = 1, rank = x[0]->rank;
  for (long i = 0; i < rank; i++) dims[i] = x[0]->dims[i];
  for (long k = 1; k < n; k++) {
    if (x[k]->rank != rank) return 1;
    for (long i = 0; i < rank; i++)
      if (i != axis && x[k]->dims[i] != dims[i]) return 1;
    dims[axis] += x[k]->dims[axis];
  }
  if (v_new(to, rank, dims, size)) return 1;
  for (long i = 0; i < axis; i++) outer *= dims[i];
  for (long i = axis + 1; i < rank; i++) inner *= dims[i];
  char *t = to->data;
  for (long o = 0; o < outer; o++)
    for (long k = 0; k < n; k++) {
      const size_t bytes = (size_t)(x[k]->dims[axis] * inner) * size;
      if (bytes) memcpy(t, (const char *)x[k]->data + (size_t)o * bytes, bytes);
      t += bytes;
    }
  return 0;
}
/* What stands behind the rows so far. */
static inline int v_append(squall_v *to, const squall_v *x, size_t size) {
  long dims[32];
  const long rows = to->rank ? to->dims[0] : 0, before = to->rank ? to->count : 0;
  if (x->rank > 31) return 1;
  for (long i = 0; i < x->rank; i++) {
    dims[i + 1] = x->dims[i];
    if (rows && to->dims[i + 1] != x->dims[i]) return 1;
  }
  dims[0] = rows + 1;
  if (v_new(to, x->rank + 1, dims, size)) return 1;
  if (x->count)
    memcpy((char *)to->data + (size_t)before * size, x->data, (size_t)x->count * size);
  return 0;
}
static inline int v_shape(squall_v *to, const squall_v *x, long start, long end) {
  long n = x->rank;
  start = start < 0 ? start + n : start, end = end < 0 ? end + n : end;
  start = start < 0 ? 0 : start > n ? n : start, end = end < 0 ? 0 : end > n ? n : end;
  long count = end > start ? end - start : 0;
  if (v_new(to, 1, &count, 8)) return 1;
  for (long i = 0; i < count; i++) ((long long *)to->data)[i] = x->dims[start + i];
  return 0;
}
static inline int v_fill(squall_v *to, const squall_list *l, const void *value, size_t size) {
  if (v_new(to, l->count, l->at, size)) return 1;
  for (long i = 0; i < to->count; i++) memcpy((char *)to->data + (size_t)i * size, value, size);
  return 0;
}
static inline int v_tile(squall_v *to, const squall_v *x, const squall_list *l, size_t size) {
  long dims[64], steps[64], own[32], out[32];
  if (l->count != x->rank || x->rank > 16) return 1;
  v_steps(x, own);
  for (long i = 0; i < x->rank; i++) {
    dims[2 * i] = l->at[i], dims[2 * i + 1] = x->dims[i];
    steps[2 * i] = 0, steps[2 * i + 1] = own[i];
    if (l->at[i] < 0) return 1;
    out[i] = l->at[i] * x->dims[i];
  }
  if (v_new(to, x->rank, out, size)) return 1;
  v_view(to->data, x->data, 2 * x->rank, dims, steps, size);
  return 0;
}
/* Rows of what a reduction joins, behind the axes that it keeps; the extents of its result, and in
 * `e` how many rows there are, and of how many elements. */
static inline int v_rows(squall_v *rows, squall_v *to, const squall_v *x, const squall_list *axes,
                         int keeps, int none, long *e, size_t size) {
  long own[32], dims[32], steps[32], made[32], n = 0, k = 0;
  unsigned joined = axes->count || none ? 0 : 0xffffffffu;
  for (long i = 0; i < axes->count; i++) {
    long a = axes->at[i] < 0 ? axes->at[i] + x->rank : axes->at[i];
    if (a < 0 || a >= x->rank) return 1;
    joined |= 1u << a;
  }
  v_steps(x, own);
  e[0] = e[1] = 1;
  for (long i = 0; i < x->rank; i++) {
    const int is = joined >> i & 1;
    e[is] *= x->dims[i];
    if (!is || keeps) made[n++] = is ? 1 : x->dims[i];
    if (!is) dims[k] = x->dims[i], steps[k++] = own[i];
  }
  for (long i = 0; i < x->rank; i++)
    if (joined >> i & 1) dims[k] = x->dims[i], steps[k++] = own[i];
  if (v_new(to, n, made, size) || v_new(rows, x->rank, dims, size)) return 1;
  v_view(rows->data, x->data, x->rank, dims, steps, size);
  return 0;
}
/* Modes are 0 constant, 1 edge, 2 reflect, 3 wrap. */
static inline int v_pad(squall_v *to, const squall_v *x, const squall_list *pads,
                        const squall_list *axes, int mode, const void *value, size_t size) {
  long dims[32], first[32] = {0}, own[32], at[32] = {0}, n = axes ? axes->count : x->rank;
  if (pads->count != 2 * n) return 1;
  for (long i = 0; i < x->rank; i++) dims[i] = x->dims[i];
  for (long i = 0; i < n; i++) {
    long a = axes ? axes->at[i] : i;
    if (a < 0) a += x->rank;
    if (a < 0 || a >= x->rank) return 1;
    first[a] = pads->at[i], dims[a] += pads->at[i] + pads->at[n + i];
  }
  if (v_new(to, x->rank, dims, size)) return 1;
  v_steps(x, own);
  for (long i = 0; i < to->count; i++) {
    long place = 0, inside = 1;
    for (long a = 0; a < x->rank; a++) {
      long p = at[a] - first[a], e = x->dims[a];
      if (p < 0 || p >= e) {
        if (mode == 0 || e == 0) inside = 0;
        else if (mode == 1) p = p < 0 ? 0 : e - 1;
        else if (mode == 3) p = (p % e + e) % e;
        else {
          long period = e > 1 ? 2 * (e - 1) : 1;
          p = (p % period + period) % period;
          if (p >= e) p = period - p;
        }
      }
      place += p * own[a];
    }
    if (!inside && mode != 0) return 1;
    memcpy((char *)to->data + (size_t)i * size,
           inside ? (const char *)x->data + (size_t)place * size : (const char *)value, size);
    for (long a = x->rank; a-- > 0;) {
      if (++at[a] < dims[a]) break;
      at[a] = 0;
    }
  }
  return 0;
}
/* Modes are 0 nearest, 1 linear, 2 cubic; those of coordinates 0 half_pixel, 1 asymmetric,
 * 2 pytorch_half_pixel, 3 align_corners; those of rounding 0 prefer_floor, 1 prefer_ceil, 2 floor,
 * 3 ceil. Elements are floats, but for the nearest. */
static inline int v_resize(squall_v *to, const squall_v *x, const squall_v *scales,
                           const squall_list *sizes, const int modes[3], float a, size_t size) {
  squall_v now = {0}, next = {0};
  int failed = 1;
  if ((sizes ? sizes->count : scales->count) != x->rank || v_copy(&now, x, size)) return 1;
  for (long d = 0; d < x->rank; d++) {
    long dims[32], outer = 1, inner = 1, in = x->dims[d], out;
    const float given = sizes ? 0 : ((const float *)scales->data)[d];
    out = sizes ? sizes->at[d] : (long)floorf((float)in * given);
    const float scale = sizes ? (float)out / (float)in : given;
    /* A fraction where a scale says so. */
    const float width = sizes ? (float)out : (float)in * given;
    if (out < 0 || (in == 0 && out > 0)) goto failed;
    if (out == in && scale == 1) continue;
    for (long i = 0; i < x->rank; i++) dims[i] = i == d ? out : now.dims[i];
    for (long i = 0; i < d; i++) outer *= dims[i];
    for (long i = d + 1; i < x->rank; i++) inner *= dims[i];
    if (v_new(&next, x->rank, dims, size)) goto failed;
    for (long o = 0; o < out; o++) {
      float p = ((float)o + 0.5f) / scale - 0.5f, w[4] = {1, 0, 0, 0};
      if (modes[1] == 1) p = (float)o / scale;
      if (modes[1] == 2 && out <= 1) p = 0;
      if (modes[1] == 3) p = o ? (float)o * (float)(in - 1) / (width - 1) : 0;
      long first = (long)floorf(p), at[4], taps = modes[0] == 0 ? 1 : modes[0] == 1 ? 2 : 4;
      const float t = p - floorf(p);
      if (modes[0] == 0)
        first = (long)(modes[2] == 0   ? ceilf(p - 0.5f)
                       : modes[2] == 1 ? floorf(p + 0.5f)
                       : modes[2] == 2 ? floorf(p)
                                       : ceilf(p));
      if (modes[0] == 1) w[0] = 1 - t, w[1] = t;
      if (modes[0] == 2) {
        const float u = 1 - t;
        first -= 1;
        w[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
        w[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
        w[2] = ((a + 2) * u - (a + 3)) * u * u + 1;
        w[3] = ((a * (u + 1) - 5 * a) * (u + 1) + 8 * a) * (u + 1) - 4 * a;
      }
      for (long k = 0; k < taps; k++) {
        at[k] = first + k;
        at[k] = at[k] < 0 ? 0 : at[k] > in - 1 ? in - 1 : at[k];
      }
      for (long b = 0; b < outer; b++) {
        if (modes[0] == 0) {
          memcpy((char *)next.data + (size_t)((b * out + o) * inner) * size,
                 (const char *)now.data + (size_t)((b * in + at[0]) * inner) * size,
                 (size_t)inner * size);
          continue;
        }
        const float *from = (const float *)now.data + b * in * inner;
        float *put = (float *)next.data + (b * out + o) * inner;
        for (long i = 0; i < inner; i++) {
          float sum = 0;
          for (long k = 0; k < taps; k++) sum += w[k] * from[at[k] * inner + i];
          put[i] = sum;
        }
      }
    }
    v_swap(&now, &next);
  }
  failed = v_copy(to, &now, size);
failed:
  v_drop(&now), v_drop(&next);
  return failed;
}
/* Codes of whole numbers, which may be floats; `values` has the elements off and on. */
static inline int v_one_hot(squall_v *to, const squall_v *x, int kind, const squall_v *depth,
                            int depth_kind, const squall_v *values, long axis, size_t size) {
  long dims[32], outer = 1, inner = 1;
#define V_NUMBER(v, kind, i) \
  ((kind) == 0 ? (long)((const long long *)(v)->data)[i] \
   : (kind) == 1 ? (long)((const int *)(v)->data)[i] : (long)((const float *)(v)->data)[i])
  const long n = V_NUMBER(depth, depth_kind, 0);
  if (n < 1 || x->rank > 31) return 1;
  for (long i = 0; i <= x->rank; i++)
    dims[i] = i < axis ? x->dims[i] : i == axis ? n : x->dims[i - 1];
  for (long i = 0; i < axis; i++) outer *= dims[i];
  for (long i = axis + 1; i <= x->rank; i++) inner *= dims[i];
  if (v_new(to, x->rank + 1, dims, size)) return 1;
  for (long o = 0; o < outer; o++)
    for (long k = 0; k < n; k++)
      for (long i = 0; i < inner; i++) {
        long at = V_NUMBER(x, kind, o * inner + i);
        if (at < 0) at += n;
        memcpy((char *)to->data + (size_t)((o * n + k) * inner + i) * size,
               (const char *)values->data + (at == k ? size : 0), size);
      }
  return 0;
}
/* Hands a value to the caller, who frees it. */
static inline int v_give(squall_v *x, long long *record, size_t size) {
  if (!x->room) {
    squall_v own = {0};
    if (v_copy(&own, x, size)) return 1;
    *x = own;
  }
  record[0] = (long long)(size_t)x->data, record[1] = (long long)((size_t)x->count * size);
  record[2] = x->rank;
  for (long i = 0; i < 32; i++) record[3 + i] = i < x->rank ? x->dims[i] : 0;
  x->data = 0, x->room = 0;
  return 0;
}
