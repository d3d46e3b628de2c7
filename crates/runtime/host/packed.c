/* Keeps a network's prepared (packed) weights in a file between runs: finds, checks, maps and
 * writes it. packed.h describes the file and says when it is trusted. */
#include "packed.h"
#include "digest.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PACKED_PAGE = 4096, PACKED_BOOT = 40, PACKED_ORDER = 0x01020304 };

typedef struct {
  char magic[8];
  uint64_t order, bytes, name, time, sections;
  char boot[PACKED_BOOT];
} packed_head;

/* Bytes of the head with its digests, and the page behind it. */
static size_t head_bytes(uint32_t sections) {
  return sizeof(packed_head) + ((size_t)sections + 1) * sizeof(uint64_t);
}

static size_t first_of(uint32_t sections) {
  return (head_bytes(sections) + PACKED_PAGE - 1) / PACKED_PAGE * PACKED_PAGE;
}

/* What the kernel calls the time since the machine was started; nothing where it does not say. */
static void name_boot(char *boot) {
  memset(boot, 0, PACKED_BOOT);
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "rb");
  if (!f) return;
  if (fread(boot, 1, PACKED_BOOT - 1, f) == 0) boot[0] = 0;
  fclose(f);
}

static uint64_t name_digest(const char *path) {
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  return rt_digest(name, strlen(name));
}

static uint64_t time_of(const struct stat *is) {
  return (uint64_t)is->st_mtim.tv_sec * 1000000000u + (uint64_t)is->st_mtim.tv_nsec;
}

/* Writes all bytes at a place of a file. */
static int put_at(int file, const void *from, size_t bytes, uint64_t at) {
  const unsigned char *p = (const unsigned char *)from;
  while (bytes > 0) {
    ssize_t n = pwrite(file, p, bytes, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    p += n, bytes -= (size_t)n, at += (uint64_t)n;
  }
  return 1;
}

/* Writes the head, and gives the file the time that it says. */
static int put_head(rt_packed *p, const char *path) {
  struct timespec now;
  packed_head head = {{'S', 'Q', 'U', 'A', 'L', 'L', 'P', 'K'}, PACKED_ORDER, p->bytes,
                      name_digest(path), 0, p->sections, {0}};
  unsigned char *all = calloc(1, p->first);
  if (!all || clock_gettime(CLOCK_REALTIME, &now) != 0) return free(all), 0;
  head.time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  name_boot(head.boot);
  memcpy(all, &head, sizeof head);
  size_t sealed = head_bytes(p->sections) - sizeof(uint64_t);
  memcpy(all + sizeof head, p->digests, p->sections * sizeof *p->digests);
  uint64_t seal = rt_digest(all, sealed);
  memcpy(all + sealed, &seal, sizeof seal);
  int fine = put_at(p->file, all, p->first, 0);
  free(all);
  const struct timespec times[2] = {now, now};
  return fine && futimens(p->file, times) == 0;
}

/* Whether the head is that of a whole file of this name with such sections. */
static int is_head(const rt_packed *p, const packed_head *head, const char *path) {
  uint64_t seal;
  size_t sealed = head_bytes(p->sections) - sizeof seal;
  memcpy(&seal, p->map + sealed, sizeof seal);
  return memcmp(head->magic, "SQUALLPK", 8) == 0 && head->order == PACKED_ORDER &&
         head->bytes == p->bytes && head->name == name_digest(path) &&
         head->sections == p->sections && rt_digest(p->map, sealed) == seal;
}

/* Whether all sections are what was written. */
static int is_intact(const rt_packed *p, const rt_section *sections) {
  const unsigned char *digests = p->map + sizeof(packed_head), *region = p->map + p->first;
  for (uint32_t i = 0; i < p->sections; i++) {
    uint64_t digest;
    memcpy(&digest, digests + i * sizeof digest, sizeof digest);
    if (rt_digest(region + sections[i].at, (size_t)sections[i].bytes) != digest) return 0;
  }
  return 1;
}

/* Notes that the file was used, and where it had to be read whole, that it was found intact. */
static void mark(rt_packed *p, const char *path, int is_fresh) {
  const struct timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  if (is_fresh) {
    if (futimens(p->file, now) != 0) return;
    return;
  }
  p->digests = malloc((p->sections + 1u) * sizeof *p->digests);
  if (!p->digests) return;
  memcpy(p->digests, p->map + sizeof(packed_head), p->sections * sizeof *p->digests);
  put_head(p, path);
}

unsigned char *rt_packed_open(rt_packed *p, const char *path, uint64_t bytes,
                              const rt_section *sections, uint32_t count) {
  struct stat is;
  memset(p, 0, sizeof *p);
  p->sections = count, p->first = first_of(count), p->bytes = p->first + (size_t)bytes;
  p->file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (p->file < 0) return NULL;
  int fine = fstat(p->file, &is) == 0 && S_ISREG(is.st_mode) && is.st_uid == geteuid() &&
             (uint64_t)is.st_size == p->bytes;
  if (fine) {
    void *map = mmap(NULL, p->bytes, PROT_READ, MAP_SHARED, p->file, 0);
    p->map = map == MAP_FAILED ? NULL : (unsigned char *)map;
  }
  packed_head head;
  if (p->map) {
    /* From the disk, where it is not in memory any more. */
    madvise(p->map, p->bytes, MADV_WILLNEED);
    memcpy(&head, p->map, sizeof head);
  }
  if (p->map && is_head(p, &head, path)) {
    char boot[PACKED_BOOT];
    name_boot(boot);
    int is_fresh = boot[0] && memcmp(boot, head.boot, PACKED_BOOT) == 0;
    is_fresh = is_fresh && time_of(&is) == head.time;
    if (is_fresh || is_intact(p, sections)) {
      mark(p, path, is_fresh);
      close(p->file);
      p->file = -1;
      return p->map + p->first;
    }
  }
  /* Another process may be writing its head just now; a new file takes the place of a bad one. */
  rt_packed_close(p);
  return NULL;
}

unsigned char *rt_packed_begin(rt_packed *p, const char *path, uint64_t bytes, uint32_t count) {
  memset(p, 0, sizeof *p);
  p->path = path, p->file = -1, p->sections = count;
  p->first = first_of(count), p->bytes = p->first + (size_t)bytes;
  const char *slash = strrchr(path, '/');
  int folder = slash ? (int)(slash - path) + 1 : 0;
  int length = snprintf(p->beside, sizeof p->beside, "%.*snew-%ld-%s", folder, path, (long)getpid(),
                        path + folder);
  if (length < 0 || (size_t)length >= sizeof p->beside) return NULL;
  p->digests = calloc(count + 1u, sizeof *p->digests);
  /* A limit of the user's on files is no reason to end. */
  signal(SIGXFSZ, SIG_IGN);
  p->file = open(p->beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  /* The room is taken first: a full disk must not show when a page is touched. */
  if (p->file >= 0 && p->digests && posix_fallocate(p->file, 0, (off_t)p->bytes) == 0) {
    void *map = mmap(NULL, p->bytes, PROT_READ, MAP_SHARED, p->file, 0);
    p->map = map == MAP_FAILED ? NULL : (unsigned char *)map;
  }
  if (p->map) return p->map + p->first;
  rt_packed_end(p, 0);
  rt_packed_close(p);
  return NULL;
}

int rt_packed_put(const rt_packed *p, uint32_t number, const rt_section *section,
                  const void *content) {
  p->digests[number] = rt_digest(content, (size_t)section->bytes);
  return put_at(p->file, content, (size_t)section->bytes, p->first + section->at);
}

/* Whether the file system took all that was written. Some say so at a close alone, as NFS does
 * where the user's quota is used up. */
static int is_flushed(int file) {
  int other = dup(file);
  return other >= 0 && close(other) == 0;
}

int rt_packed_end(rt_packed *p, int is_whole) {
  if (p->file < 0) return 0;
  int fine = is_whole && is_flushed(p->file);
  /* A file that cannot be kept serves this run all the same. */
  int is_kept = fine && put_head(p, p->path) && rename(p->beside, p->path) == 0;
  if (!is_kept) unlink(p->beside);
  close(p->file);
  p->file = -1;
  return fine;
}

void rt_packed_close(rt_packed *p) {
  if (p->map) munmap(p->map, p->bytes);
  if (p->file >= 0) close(p->file);
  free(p->digests);
  memset(p, 0, sizeof *p);
  p->file = -1;
}
