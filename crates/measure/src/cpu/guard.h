/* Part of runner.c: buffers between pages that cannot be touched, their end as close to the upper
 * one as 64-byte alignment allows, with canaries in the bytes left over on both sides. */
#include <sys/mman.h>
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

enum { ALIGN = 64, CANARY = 0xA5 };

static size_t page;

typedef struct {
  const char *name;
  int number;            /* among buffers of one name, or -1 */
  unsigned char *base;   /* the lower guard page */
  size_t inside;         /* bytes between the guard pages */
  unsigned char *at;     /* what the kernel is given */
  size_t size;           /* what the kernel may use of it */
} buffer;

static buffer *known[8 * TENSORS]; /* all that were ever placed, for the message of a crash */
static int known_count;

static size_t rounded(size_t size) { return (size + ALIGN - 1) / ALIGN * ALIGN; }

static void access_to(buffer *b, int protection) { mprotect(b->base + page, b->inside, protection); }

/* Makes room for `size` bytes, writable, of undefined content. */
static int place(buffer *b, const char *name, int number, size_t size) {
  size_t inside = (rounded(size) + page - 1) / page * page;
  if (inside == 0) inside = page;
  b->name = name;
  b->number = number;
  if (b->base && (b->inside < inside || b->inside > 4 * inside + (64 << 10))) {
    munmap(b->base, b->inside + 2 * page);
    b->base = NULL;
  }
  if (!b->base) {
    void *m = size > SIZE_MAX / 4 ? MAP_FAILED : mmap(NULL, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return fail("memory", "cannot allocate %zu bytes for %s", size, name);
    b->base = m;
    b->inside = inside;
#ifdef MADV_HUGEPAGE
    /* As the memory that kernels are given elsewhere (numpy's, a network's arena): 9 MB of weights
     * are more small pages than the second-level TLB holds. */
    if (inside >= (size_t)4 << 20) madvise(b->base + page, inside, MADV_HUGEPAGE);
#endif
    int i = 0;
    while (i < known_count && known[i] != b) i++;
    if (i == known_count) known[known_count++] = b;
  }
  if (mprotect(b->base + page, b->inside, PROT_READ | PROT_WRITE) != 0)
    return fail("memory", "cannot allocate %zu bytes for %s: %s", size, name, strerror(errno));
  b->at = b->base + page + b->inside - rounded(size);
  b->size = size;
  return 1;
}

static unsigned char *slack(buffer *b) {
  unsigned char *start = b->base + page;
  return (size_t)(b->at - start) > page ? b->at - page : start;
}

static void fill_slack(buffer *b, int byte) {
  unsigned char *start = slack(b);
  memset(start, byte, (size_t)(b->at - start));
  memset(b->at + b->size, byte, rounded(b->size) - b->size);
}

static int untouched(buffer *b) {
  unsigned char *end = b->at + rounded(b->size);
  for (unsigned char *p = b->at; p > slack(b); p--)
    if (p[-1] != CANARY) return fail("damage", "wrote in front of %s (byte -%zu)", b->name, (size_t)(b->at - p + 1));
  for (unsigned char *p = b->at + b->size; p < end; p++)
    if (*p != CANARY) return fail("damage", "wrote behind the end of %s (byte %zu of %zu)", b->name, (size_t)(p - b->at), b->size);
  return 1;
}
