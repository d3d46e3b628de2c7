/* The file in which a network's prepared weights stay from one run to the next:
 *
 *   offset 0   magic "SQUALLPK", u64 0x01020304
 *         16   u64 bytes of the file, u64 digest of its name, u64 its time, u64 sections
 *         48   40 bytes that name the boot of the machine in which it was written or checked
 *         88   of each section: u64 digest; then u64 digest of all bytes before
 *
 * From the next page on it has the region of prepared weights, a section for each call that has
 * some. Its name is a digest of all that the weights are made of. A file is written under
 * another name, is renamed when it is whole, and is used if its size, its name and its head
 * agree. A file that was not touched since, by its time and the boot, is used as it is; any
 * other one is first read whole and compared with its digests, since a machine that lost its
 * power may have lost pages of it. */
#ifndef SQUALL_PACKED_H
#define SQUALL_PACKED_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
  const char *path;   /* NULL where nothing is kept */
  char beside[4096];  /* the file that is written */
  int file;           /* it, or -1 */
  unsigned char *map; /* the head, and the region behind it */
  size_t bytes;       /* of the map */
  size_t first;       /* where the region begins */
  uint64_t *digests;  /* of the sections that were written */
  uint32_t sections;
} rt_packed;

/* A part of the region that one call's weights are packed into. */
typedef struct {
  uint64_t at, bytes;
} rt_section;

/* The region of a kept file: NULL where there is none that can be used, which is removed then. */
unsigned char *rt_packed_open(rt_packed *p, const char *path, uint64_t bytes,
                              const rt_section *sections, uint32_t count);
/* Begins a file with room for the region, which can be read where it is mapped: NULL where there is
 * no room on the disk or no right. */
unsigned char *rt_packed_begin(rt_packed *p, const char *path, uint64_t bytes, uint32_t count);
/* Writes a section, the `number`th, which several threads may do at once; 0 where that fails. */
int rt_packed_put(const rt_packed *p, uint32_t number, const rt_section *section,
                  const void *content);
/* Gives the file that is whole its name, or removes one that is not; 0 where what was written may
 * not be read back from its map. */
int rt_packed_end(rt_packed *p, int is_whole);
void rt_packed_close(rt_packed *p);

#endif
