/* The elements of tensors of all types: sizes, conversion to double, comparison, and random
 * values, hard ones (NaN, infinities) among them. Types are letters, which element.h lists. */
#include "element.h"
#include <math.h>
#include <string.h>

size_t rt_size_of(char type) {
  switch (type) {
  case 'd':
  case 'l':
  case 'L': return 8;
  case 'f':
  case 'i':
  case 'I': return 4;
  case 'h':
  case 'B':
  case 's':
  case 'S': return 2;
  default: return 1;
  }
}

int rt_is_whole(char type) { return !strchr("fdhB", type); }

double rt_last_place(char type) { return type == 'h' ? 0x1p-10 : type == 'B' ? 0x1p-7 : 0; }

uint64_t rt_random(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

union float_bits {
  uint32_t bits;
  float x;
};

static float from_half(char type, uint16_t h) {
  union float_bits u = {type == 'B' ? (uint32_t)h << 16 : rt_of_f16(h)};
  return u.x;
}

static uint16_t to_half(char type, float x) {
  union float_bits u = {.x = x};
  return type == 'B' ? rt_bf16(u.bits) : rt_f16(u.bits);
}

double rt_element(const void *x, char type, size_t i) {
  switch (type) {
  case 'f': return ((const float *)x)[i];
  case 'd': return ((const double *)x)[i];
  case 'b': return ((const int8_t *)x)[i];
  case 'u':
  case 'o': return ((const unsigned char *)x)[i];
  case 's': return ((const int16_t *)x)[i];
  case 'S': return ((const uint16_t *)x)[i];
  case 'I': return ((const uint32_t *)x)[i];
  case 'L': return (double)((const uint64_t *)x)[i];
  case 'i': return ((const int32_t *)x)[i];
  case 'h':
  case 'B': return from_half(type, ((const uint16_t *)x)[i]);
  default: return (double)((const int64_t *)x)[i];
  }
}

double rt_apart(const void *a, const void *b, char type, size_t i) {
  if (type == 'L') {
    uint64_t x = ((const uint64_t *)a)[i], y = ((const uint64_t *)b)[i];
    return (double)(x > y ? x - y : y - x);
  }
  if (type != 'l') return fabs(rt_element(a, type, i) - rt_element(b, type, i));
  /* Doubles do not tell large whole numbers apart. */
  int64_t x = ((const int64_t *)a)[i], y = ((const int64_t *)b)[i];
  return (double)(x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x);
}

int rt_same(double got, double want) {
  return isnan(want) ? isnan(got) : isinf(want) && got == want;
}

int rt_all_bytes(const unsigned char *x, size_t count, int byte) {
  for (size_t i = 0; i < count; i++)
    if (x[i] != byte) return 0;
  return 1;
}

void rt_harden(void *to, const rt_tensor *t, uint64_t *seed) {
  static const uint32_t values[] = {
      0x7fc00000, 0, 0x80000000,                     /* NaN, zeros */
      0x7f800000, 0xff800000, 0x000116c2, 0x800116c2 /* infinities, 1e-40 */,
      0x58635fa9, 0xd8635fa9                         /* 1e15 */};
  const uint64_t all = t->hard == 2 ? 9 : 3, most = t->hard == 2 ? 18 : 8;
  const uint64_t places = t->count / 64 < most ? t->count / 64 : most;
  uint32_t *x = to;
  if (!t->hard || t->type != 'f' || t->count < 8) return;
  for (uint64_t i = 0; i < places; i++) x[rt_random(seed) % t->count] = values[i % all];
  /* In a first vector and in what is left behind the last one. */
  x[3] = x[t->count - 1] = values[0];
}

void rt_fill(void *to, const rt_tensor *t, uint64_t *seed) {
  if (t->type == 'f' && !t->bounded) {
    float *x = (float *)to;
    for (size_t i = 0; i < t->count; i += 2) {
      uint64_t r = rt_random(seed);
      x[i] = (float)(int32_t)(r >> 40 << 8) * 0x1p-31f;
      if (i + 1 < t->count) x[i + 1] = (float)(int32_t)(uint32_t)((r & 0xFFFFFF) << 8) * 0x1p-31f;
    }
    return;
  }
  int whole = rt_is_whole(t->type);
  int positive = strchr("uSILo", t->type) != NULL;
  double low = t->bounded ? t->low : whole ? (positive ? 0 : -8) : -1;
  double high = t->bounded ? t->high : whole && t->type != 'o' ? 8 : 1;
  for (size_t i = 0; i < t->count; i++) {
    double part = (double)(rt_random(seed) >> 11) * 0x1p-53;
    double v = whole ? floor(low + part * (high - low + 1)) : low + part * (high - low);
    /* Rounding must not lead out of the range. */
    v = v > high ? high : v < low ? low : v;
    switch (t->type) {
    case 'f': ((float *)to)[i] = (float)v; break;
    case 'd': ((double *)to)[i] = v; break;
    case 'b': ((int8_t *)to)[i] = (int8_t)v; break;
    case 'u':
    case 'o': ((unsigned char *)to)[i] = (unsigned char)v; break;
    case 's': ((int16_t *)to)[i] = (int16_t)v; break;
    case 'S': ((uint16_t *)to)[i] = (uint16_t)v; break;
    case 'I': ((uint32_t *)to)[i] = (uint32_t)v; break;
    case 'L': ((uint64_t *)to)[i] = (uint64_t)v; break;
    case 'i': ((int32_t *)to)[i] = (int32_t)v; break;
    case 'h':
    case 'B': ((uint16_t *)to)[i] = to_half(t->type, (float)v); break;
    default: ((int64_t *)to)[i] = (int64_t)v;
    }
  }
}
