/* For `compare.c` and `compare_moves.c`: random numbers, and memory that ends at a page that may
 * not be touched, so that a write past its end is a fault. */
#ifndef SQUALL_GUARDED_H
#define SQUALL_GUARDED_H
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

static uint64_t state = 0x5eed;

static uint64_t next(void) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* Bytes from a line of the cache on, that end, but for what is left of the last line, where memory
 * begins that may not be touched. */
static unsigned char *guarded(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (bytes + 63 + page) / page * page;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  unsigned char *m = mmap(0, all + page, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (m == MAP_FAILED) _exit(3);
  mprotect(m + all, page, PROT_NONE);
  return m + (all - bytes) / 64 * 64;
}
#endif
