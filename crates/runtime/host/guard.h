/* Buffers between two pages that cannot be touched. A buffer ends as close to the upper page as
 * its alignment by 64 bytes allows; the bytes that remain on both sides hold canaries, so that
 * writes outside of the buffer are found. */
#ifndef SQUALL_GUARD_H
#define SQUALL_GUARD_H
#include "error.h"
#include <stddef.h>

enum { RT_CANARY = 0xA5, RT_GUARDED = 4096 };

typedef struct {
  const char *name;
  int number;          /* among buffers of one name, or -1 */
  unsigned char *base; /* the lower guard page */
  size_t inside;       /* bytes between the guard pages */
  unsigned char *at;   /* the address that the kernel gets */
  size_t size;         /* the bytes that the kernel may use */
} rt_guarded;

/* All buffers that were ever placed, for the message of a crash. */
typedef struct {
  size_t page;
  const rt_guarded *known[RT_GUARDED];
  int count;
} rt_guards;

/* Makes room for `size` bytes, writable, of undefined content. */
int rt_place(rt_guards *all, rt_guarded *b, const char *name, int number, size_t size, rt_error *e);
void rt_read_only(const rt_guards *all, const rt_guarded *b);
void rt_writable(const rt_guards *all, const rt_guarded *b);
/* Fills what lies beside the buffer. */
void rt_fill_slack(const rt_guards *all, rt_guarded *b, int byte);
/* Whether the canaries beside the buffer are as they were. */
int rt_untouched(const rt_guards *all, const rt_guarded *b, rt_error *e);
/* Where an address lies, in words. */
void rt_describe_address(const rt_guards *all, const void *address, char *to, size_t room);

/* Memory without a guard, of large pages where the system has them: for what is read as a whole. */
void *rt_large_memory(size_t bytes);

#endif
