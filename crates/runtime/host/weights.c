/* Checks and writes the file of an exported network's weights. weights.h describes the file. */
#include "weights.h"
#include "digest.h"
#include <string.h>

enum { HEAD = 40, ENTRY = 32, ORDER = 0x01020304 };

static uint32_t small_at(const unsigned char *p) {
  uint32_t x;
  memcpy(&x, p, sizeof x);
  return x;
}

static uint64_t large_at(const unsigned char *p) {
  uint64_t x;
  memcpy(&x, p, sizeof x);
  return x;
}

/* Whether the file holds a region. */
static int is_kept(const rt_region *r) {
  return (r->role == RT_CONSTANT || r->role == RT_PREPARED) && r->bytes > 0;
}

rt_weights_state rt_weights_check(const void *file, size_t bytes, const rt_plan *plan,
                                  uint64_t plan_digest, const void **contents) {
  const unsigned char *head = (const unsigned char *)file;
  if (bytes < HEAD + 8 || memcmp(head, "SQUALLWT", 8) != 0) return RT_WEIGHTS_DAMAGED;
  if (small_at(head + 12) != ORDER) return RT_WEIGHTS_VERSION_DIFFERS;
  if (small_at(head + 8) != RT_WEIGHTS_VERSION) return RT_WEIGHTS_VERSION_DIFFERS;
  uint64_t count = small_at(head + 32), sealed = HEAD + count * ENTRY;
  if (large_at(head + 16) != bytes || sealed > bytes - 8) return RT_WEIGHTS_DAMAGED;
  if (rt_digest(head, (size_t)sealed) != large_at(head + sealed)) return RT_WEIGHTS_DAMAGED;
  if (large_at(head + 24) != plan_digest) return RT_WEIGHTS_OTHER;
  /* Digests protect from damage; sizes are checked against files that were made to deceive. */
  const unsigned char *entry = head + HEAD;
  for (uint32_t i = 0; i < plan->region_count; i++) {
    const rt_region *r = &plan->regions[i];
    contents[i] = NULL;
    if (!is_kept(r)) continue;
    if (count == 0 || small_at(entry) != i) return RT_WEIGHTS_DAMAGED;
    uint64_t at = large_at(entry + 8), size = large_at(entry + 16);
    if (size != r->bytes || at % RT_WEIGHTS_PAGE || at < sealed + 8) return RT_WEIGHTS_DAMAGED;
    if (at > bytes || size > bytes - at) return RT_WEIGHTS_DAMAGED;
    contents[i] = head + at;
    entry += ENTRY;
    count--;
  }
  return count == 0 ? RT_WEIGHTS_FINE : RT_WEIGHTS_DAMAGED;
}

int rt_weights_intact(const void *file) {
  const unsigned char *head = (const unsigned char *)file;
  const unsigned char *entry = head + HEAD;
  for (uint32_t i = small_at(head + 32); i-- > 0; entry += ENTRY)
    if (rt_digest(head + large_at(entry + 8), (size_t)large_at(entry + 16)) != large_at(entry + 24))
      return 0;
  return 1;
}

#ifdef SQUALL_WRITES_WEIGHTS
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void put_small(unsigned char **at, uint32_t x) {
  memcpy(*at, &x, sizeof x);
  *at += sizeof x;
}

static void put_large(unsigned char **at, uint64_t x) {
  memcpy(*at, &x, sizeof x);
  *at += sizeof x;
}

static uint64_t next_page(uint64_t at) {
  return (at + RT_WEIGHTS_PAGE - 1) / RT_WEIGHTS_PAGE * RT_WEIGHTS_PAGE;
}

/* The digest of a file. */
static int digest_of(const char *path, uint64_t *digest, rt_error *e) {
  FILE *f = fopen(path, "rb");
  if (!f) return rt_fail(e, "file", "%s: %s", path, strerror(errno));
  char *text = NULL;
  long length = -1;
  if (fseek(f, 0, SEEK_END) == 0) length = ftell(f);
  rewind(f);
  int fine = length >= 0 && (text = malloc((size_t)length + 1)) != NULL &&
             fread(text, 1, (size_t)length, f) == (size_t)length;
  fclose(f);
  if (fine) *digest = rt_digest(text, (size_t)length);
  free(text);
  return fine || rt_fail(e, "file", "%s cannot be read", path);
}

/* The head of a file with all of its digests. */
static void write_head(unsigned char *head, uint64_t bytes, uint64_t plan_digest,
                       const rt_plan *plan, const void *const *regions, uint64_t first) {
  unsigned char *at = head + 8;
  uint32_t count = 0;
  for (uint32_t i = 0; i < plan->region_count; i++) count += (uint32_t)is_kept(&plan->regions[i]);
  memcpy(head, "SQUALLWT", 8);
  put_small(&at, RT_WEIGHTS_VERSION), put_small(&at, ORDER);
  put_large(&at, bytes), put_large(&at, plan_digest);
  put_small(&at, count), put_small(&at, 0);
  uint64_t offset = first;
  for (uint32_t i = 0; i < plan->region_count; i++) {
    const rt_region *r = &plan->regions[i];
    if (!is_kept(r)) continue;
    put_small(&at, i), put_small(&at, 0);
    put_large(&at, offset), put_large(&at, r->bytes);
    put_large(&at, rt_digest(regions[i], (size_t)r->bytes));
    offset += next_page(r->bytes);
  }
  put_large(&at, rt_digest(head, (size_t)(at - head)));
}

int rt_weights_write(const char *path, const char *plan_path, const rt_plan *plan,
                     const void *const *regions, rt_error *e) {
  static const unsigned char zeros[RT_WEIGHTS_PAGE];
  uint64_t count = 0, body = 0, digest = 0;
  if (!digest_of(plan_path, &digest, e)) return 0;
  for (uint32_t i = 0; i < plan->region_count; i++)
    if (is_kept(&plan->regions[i])) count++, body += next_page(plan->regions[i].bytes);
  const uint64_t first = next_page(HEAD + count * ENTRY + 8);
  unsigned char *head = calloc(1, (size_t)first);
  if (!head) return rt_fail(e, "memory", "there is not enough memory");
  write_head(head, first + body, digest, plan, regions, first);
  FILE *f = fopen(path, "wb");
  int fine = f && fwrite(head, 1, (size_t)first, f) == first;
  for (uint32_t i = 0; i < plan->region_count && fine; i++) {
    const rt_region *r = &plan->regions[i];
    if (!is_kept(r)) continue;
    size_t bytes = (size_t)r->bytes, rest = (size_t)(next_page(r->bytes) - r->bytes);
    fine = fwrite(regions[i], 1, bytes, f) == bytes && fwrite(zeros, 1, rest, f) == rest;
  }
  int why = errno;
  if (f && fclose(f) != 0 && fine) fine = 0, why = errno;
  free(head);
  return fine || rt_fail(e, "file", "%s: %s", path, strerror(why));
}
#endif
