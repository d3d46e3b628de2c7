/* Buffers between guard pages for kernels that are tried: a write beside a buffer is a fault, or
 * damages a canary that is checked. Also plain large memory. guard.h has the interface. */
#define _GNU_SOURCE
#include "guard.h"
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

static size_t rounded(size_t size) { return (size + 63) / 64 * 64; }

static void *mapped(size_t bytes) {
  void *m = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return m == MAP_FAILED ? NULL : m;
}

int rt_place(rt_guards *all, rt_guarded *b, const char *name, int number, size_t size,
             rt_error *e) {
  size_t page = all->page, inside = (rounded(size) + page - 1) / page * page;
  if (inside == 0) inside = page;
  b->name = name;
  b->number = number;
  if (b->base && (b->inside < inside || b->inside > 4 * inside + (64 << 10))) {
    munmap(b->base, b->inside + 2 * page);
    b->base = NULL;
  }
  if (!b->base) {
    void *m = size > SIZE_MAX / 4 ? NULL : mapped(inside + 2 * page);
    if (!m) return rt_fail(e, "memory", "cannot allocate %zu bytes for %s", size, name);
    b->base = m;
    b->inside = inside;
#ifdef MADV_HUGEPAGE
    /* As the memory that kernels are given elsewhere (numpy's, a network's arena): 9 MB of weights
     * are more small pages than the second-level TLB holds. */
    if (inside >= (size_t)4 << 20) madvise(b->base + page, inside, MADV_HUGEPAGE);
#endif
    int i = 0;
    while (i < all->count && all->known[i] != b) i++;
    if (i == all->count && i < RT_GUARDED) all->known[all->count++] = b;
  }
  if (mprotect(b->base + page, b->inside, PROT_READ | PROT_WRITE) != 0)
    return rt_fail(e, "memory", "cannot allocate %zu bytes for %s: %s", size, name,
                   strerror(errno));
  b->at = b->base + page + b->inside - rounded(size);
  b->size = size;
  return 1;
}

void rt_read_only(const rt_guards *all, const rt_guarded *b) {
  mprotect(b->base + all->page, b->inside, PROT_READ);
}

void rt_writable(const rt_guards *all, const rt_guarded *b) {
  mprotect(b->base + all->page, b->inside, PROT_READ | PROT_WRITE);
}

static unsigned char *slack(const rt_guards *all, const rt_guarded *b) {
  unsigned char *start = b->base + all->page;
  return (size_t)(b->at - start) > all->page ? b->at - all->page : start;
}

void rt_fill_slack(const rt_guards *all, rt_guarded *b, int byte) {
  unsigned char *start = slack(all, b);
  memset(start, byte, (size_t)(b->at - start));
  memset(b->at + b->size, byte, rounded(b->size) - b->size);
}

int rt_untouched(const rt_guards *all, const rt_guarded *b, rt_error *e) {
  const unsigned char *end = b->at + rounded(b->size);
  for (const unsigned char *p = b->at; p > slack(all, b); p--)
    if (p[-1] != RT_CANARY)
      return rt_fail(e, "damage", "wrote in front of %s (byte -%zu)", b->name,
                     (size_t)(b->at - p + 1));
  for (const unsigned char *p = b->at + b->size; p < end; p++)
    if (*p != RT_CANARY)
      return rt_fail(e, "damage", "wrote behind the end of %s (byte %zu of %zu)", b->name,
                     (size_t)(p - b->at), b->size);
  return 1;
}

void rt_describe_address(const rt_guards *all, const void *address, char *to, size_t room) {
  const unsigned char *at = address;
  snprintf(to, room, ", at an address outside its buffers");
  for (int i = 0; i < all->count; i++) {
    const rt_guarded *b = all->known[i];
    if (!b->base || at < b->base || at >= b->base + b->inside + 2 * all->page) continue;
    char label[80];
    if (b->number < 0) snprintf(label, sizeof label, "%s", b->name);
    else snprintf(label, sizeof label, "%s %d", b->name, b->number);
    if (at < b->at)
      snprintf(to, room, ", %zu bytes in front of %s", (size_t)(b->at - at), label);
    else if (at >= b->at + b->size)
      snprintf(to, room, ", %zu bytes behind the end of %s (%zu bytes)",
               (size_t)(at - b->at - b->size), label, b->size);
    else
      snprintf(to, room, ", writing to %s, which is read-only (byte %zu)", label,
               (size_t)(at - b->at));
  }
}

void *rt_large_memory(size_t bytes) {
  void *p = NULL;
  size_t big = (size_t)2 << 20, align = bytes >= big ? big : 64;
  bytes = (bytes / align + 1) * align;
  if (posix_memalign(&p, align, bytes) != 0) return NULL;
#ifdef MADV_HUGEPAGE
  if (align == big) madvise(p, bytes, MADV_HUGEPAGE);
#endif
  return p;
}
