/* XXH64, the digest by which files of weights are checked; digest.h has the interface. */
#include "digest.h"

static const uint64_t A = 0x9E3779B185EBCA87u, B = 0xC2B2AE3D27D4EB4Fu, C = 0x165667B19E3779F9u,
                      D = 0x85EBCA77C2B2AE63u, E = 0x27D4EB2F165667C5u;

static uint64_t turned(uint64_t x, int by) { return x << by | x >> (64 - by); }

/* The words of little-endian bytes, in whole expressions of which compilers make one load. */
static uint64_t half_at(const unsigned char *p) {
  return p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
}

static uint64_t word_at(const unsigned char *p) { return half_at(p) | half_at(p + 4) << 32; }

static uint64_t mixed(uint64_t lane, uint64_t word) { return turned(lane + word * B, 31) * A; }

uint64_t rt_digest(const void *bytes, size_t length) {
  const unsigned char *p = (const unsigned char *)bytes;
  uint64_t sum = E;
  size_t left = length;
  if (left >= 32) {
    uint64_t lanes[4] = {A + B, B, 0, 0 - A};
    for (; left >= 32; left -= 32)
      for (int i = 0; i < 4; i++, p += 8) lanes[i] = mixed(lanes[i], word_at(p));
    sum = turned(lanes[0], 1) + turned(lanes[1], 7) + turned(lanes[2], 12) + turned(lanes[3], 18);
    for (int i = 0; i < 4; i++) sum = (sum ^ mixed(0, lanes[i])) * A + D;
  }
  sum += length;
  for (; left >= 8; left -= 8, p += 8) sum = turned(sum ^ mixed(0, word_at(p)), 27) * A + D;
  if (left >= 4) {
    sum = turned(sum ^ half_at(p) * A, 23) * B + C;
    left -= 4, p += 4;
  }
  for (; left > 0; left--, p++) sum = turned(sum ^ *p * E, 11) * A;
  sum = (sum ^ sum >> 33) * B;
  sum = (sum ^ sum >> 29) * C;
  return sum ^ sum >> 32;
}
