/* Launches of a GPU kernel: the tables in which a plan describes them, and the code that binds a
 * table to memory as the arguments that the driver takes. Runner, network and the launchers of
 * exported kernels use this one text; it is C and C++, and needs nothing else. */
#ifndef SQUALL_LAUNCH_H
#define SQUALL_LAUNCH_H
#include <stddef.h>
#include <stdint.h>

enum { RT_MAP_BYTES = 128, RT_RANK = 5 };

/* One argument of a launched function. */
typedef struct {
  char kind;              /* d data, w weight, o output, r restored output, p prepared memory,
                           * s workspace, x number, m tensor map, e status */
  uint32_t index, from;   /* which of them; of a restored output the data that is copied to it */
  uint64_t bytes;         /* of a number, or of what is copied */
  unsigned char value[8]; /* of a number */
} rt_argument;

/* A tensor in device memory whose tiles the copy engine fetches. */
typedef struct {
  char memory; /* d data, p prepared memory, s workspace */
  uint64_t at; /* which data; the first byte of the others */
  uint32_t rank;
  uint64_t extents[RT_RANK], strides[RT_RANK];
  uint32_t spanned[RT_RANK], steps[RT_RANK];
} rt_map;

typedef struct {
  int prepare;       /* once ahead of all calls, else at each call */
  const char *entry; /* the function's name in the cubin */
  uint32_t blocks[3], threads[3], shared;
  uint32_t argument_count, map_count;
  const rt_argument *arguments;
  const rt_map *maps;
} rt_launch;

/* Device memory of one call. */
typedef struct {
  const void *const *data, *const *weights;
  void *const *outputs;
  const void *prepared;
  void *workspace;
  uint32_t *status; /* 0 before the call; another number says that it did not succeed */
} rt_memory;

/* A tensor map as CUDA takes it. */
typedef union {
  unsigned char bytes[RT_MAP_BYTES];
  uint64_t aligned_by;
} rt_encoded_map __attribute__((aligned(64)));

/* The driver's cuTensorMapEncodeTiled. */
typedef int rt_encode_function(void *, int, unsigned, unsigned long long,
                               const unsigned long long *, const unsigned long long *,
                               const unsigned *, const unsigned *, int, int, int, int);

static inline const void *rt_argument_pointer(const rt_argument *a, const rt_memory *m) {
  switch (a->kind) {
  case 'd': return m->data[a->index];
  case 'w': return m->weights[a->index];
  case 'o':
  case 'r': return m->outputs[a->index];
  case 'p': return m->prepared;
  case 'e': return m->status;
  default: return m->workspace;
  }
}

/* Encodes a map: elements of 16 bits, tiles in rows of 128 bytes, swizzled, fetched through L2 by
 * 128 bytes, zeros outside; the driver's code. */
static inline int rt_encode_map(const rt_map *map, const rt_memory *m, rt_encode_function *encode,
                                rt_encoded_map *to) {
  enum { UINT16 = 1, PLAIN = 0, BY_128 = 3, FETCH_128 = 2, ZEROS = 0 };
  unsigned long long extents[RT_RANK], strides[RT_RANK];
  unsigned spanned[RT_RANK], steps[RT_RANK];
  for (uint32_t i = 0; i < RT_RANK; i++) {
    extents[i] = map->extents[i], strides[i] = map->strides[i];
    spanned[i] = map->spanned[i], steps[i] = map->steps[i];
  }
  uintptr_t at = (uintptr_t)m->workspace + map->at;
  if (map->memory == 'd') at = (uintptr_t)m->data[map->at];
  if (map->memory == 'p') at = (uintptr_t)m->prepared + map->at;
  return encode(to->bytes, UINT16, map->rank, at, extents, strides, spanned, steps, PLAIN, BY_128,
                FETCH_128, ZEROS);
}

/* Fills `arguments` for the driver: pointers to `values`, to numbers of the launch, or to `maps`,
 * which were encoded before. All three have room for what the launch says. */
static inline void rt_bind(const rt_launch *l, const rt_memory *m, const void **values,
                           rt_encoded_map *maps, void **arguments) {
  for (uint32_t i = 0; i < l->argument_count; i++) {
    const rt_argument *a = &l->arguments[i];
    if (a->kind == 'x') {
      arguments[i] = (void *)(uintptr_t)a->value;
    } else if (a->kind == 'm') {
      arguments[i] = maps[a->index].bytes;
    } else {
      values[i] = rt_argument_pointer(a, m);
      arguments[i] = &values[i];
    }
  }
}

#endif
