/* The elements of tensors. A letter stands for a type, here and in the text of plans:
 *   f f32, d f64, h f16, B bf16, b i8, u u8, s i16, S u16, i i32, I u32, l i64, L u64, o bool (a
 *   byte that is 0 or 1). */
#ifndef SQUALL_ELEMENT_H
#define SQUALL_ELEMENT_H
#include <stddef.h>
#include <stdint.h>

/* Words of the record of an output that grew: address, bytes, rank, and up to 32 extents. The
 * reader of the record frees the memory. */
enum { RT_RECORD = 35 };

#define RT_TYPES "fdhBbusSiIlLo"

typedef struct {
  char type;
  uint64_t count;
  int bounded; /* values lie in low ..= high; else in [-1, 1), whole numbers in -8 ..= 8 */
  double low, high;
  int hard; /* 1: NaN and zeros among them; 2: infinities, denormal and large numbers, too */
  int gaps; /* of an output: what the reference does not write, nothing may write */
  const char *file; /* holds the values where it is given */
  int grown; /* of an output: it is a record of memory that the run took, RT_RECORD words */
} rt_tensor;

/* The bits of a float rounded to bf16, to the nearest and ties to even; what is no number stays
 * none. */
static inline uint16_t rt_bf16(uint32_t bits) {
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}
/* The bits of a float rounded to f16, to the nearest and ties to even; infinite from 65520 on. */
static inline uint16_t rt_f16(uint32_t bits) {
  uint32_t size = bits & 0x7fffffff;
  union {
    uint32_t bits;
    float x;
  } small = {size};
  /* Below 2^-14 the bits count steps of 2^-24, which floats from a half on have, too. */
  small.x += 0.5f;
  uint32_t rounded = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
  rounded = size < 0x38800000 ? small.bits - 0x3f000000 : rounded;
  rounded = size >= 0x477ff000 ? 0x7c00 : rounded;
  rounded = size > 0x7f800000 ? 0x7e00 : rounded;
  return (uint16_t)(rounded | (bits >> 16 & 0x8000));
}
/* The bits of the float that an f16 is. */
static inline uint32_t rt_of_f16(uint16_t h) {
  union {
    uint32_t bits;
    float x;
  } u = {(uint32_t)(h & 0x7fff) << 13};
  /* Scaled by 2^112, exponents of both formats agree, below the normal range too. */
  u.x *= 0x1p112f;
  return u.bits | ((h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0) | (uint32_t)(h & 0x8000) << 16;
}
size_t rt_size_of(char type);
int rt_is_whole(char type);
/* Between the last places of neighbouring numbers of 16 bits, relative to the number. */
double rt_last_place(char type);
/* An element as a double. */
double rt_element(const void *x, char type, size_t i);
/* How far two elements lie apart; not a number where one of them is none. */
double rt_apart(const void *a, const void *b, char type, size_t i);
/* Whether two values that lie too far apart for a number agree all the same. */
int rt_same(double got, double want);
int rt_all_bytes(const unsigned char *x, size_t count, int byte);
/* The next 64 random bits (splitmix64). */
uint64_t rt_random(uint64_t *state);
/* Random elements, as the tensor says. */
void rt_fill(void *to, const rt_tensor *t, uint64_t *seed);
/* Puts hard values in the place of some elements. */
void rt_harden(void *to, const rt_tensor *t, uint64_t *seed);

#endif
