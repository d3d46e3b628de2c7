/* The file of an exported network's constants and prepared weights, made to be mapped:
 *
 *   offset 0   magic "SQUALLWT"
 *          8   u32 version, u32 0x01020304
 *         16   u64 bytes of the file
 *         24   u64 digest of the plan that the file belongs to
 *         32   u32 sections, u32 0
 *         40   of each section: u32 region of the plan, u32 0, u64 offset, u64 bytes, u64 digest
 *              u64 digest of all bytes before
 *
 * Numbers have the byte order of the machine, which the second word shows; sections start at
 * multiples of 4096 and follow the order of regions. Checking a file reads its head only. */
#ifndef SQUALL_WEIGHTS_H
#define SQUALL_WEIGHTS_H
#include "plan.h"

enum { RT_WEIGHTS_VERSION = 1, RT_WEIGHTS_PAGE = 4096 };

typedef enum { RT_WEIGHTS_FINE, RT_WEIGHTS_DAMAGED, RT_WEIGHTS_VERSION_DIFFERS, RT_WEIGHTS_OTHER }
    rt_weights_state;

/* Whether a file belongs to a plan, by its head, and where its regions' contents lie: `contents`
 * has a place for each region, and those that are not in the file become NULL. Any bytes are taken.
 * DAMAGED is no such file or one that is cut or changed, OTHER is the file of another network. */
rt_weights_state rt_weights_check(const void *file, size_t bytes, const rt_plan *plan,
                                  uint64_t plan_digest, const void **contents);
/* Whether the content of a file that was checked is what was written: reads all of it. */
int rt_weights_intact(const void *file);
/* Writes the file of a plan; `regions` holds the memory of each region. */
int rt_weights_write(const char *path, const char *plan_path, const rt_plan *plan,
                     const void *const *regions, rt_error *e);

#endif
