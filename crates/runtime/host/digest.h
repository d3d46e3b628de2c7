/* The digest by which damaged files of weights are found: XXH64 with seed 0. It does not protect
 * against deliberate forgery. */
#ifndef SQUALL_DIGEST_H
#define SQUALL_DIGEST_H
#include <stddef.h>
#include <stdint.h>

uint64_t rt_digest(const void *bytes, size_t length);

#endif
