/* The digest of bytes by which damage is seen: XXH64 with seed 0. It is no protection against those
 * who mean to deceive. */
#ifndef SQUALL_DIGEST_H
#define SQUALL_DIGEST_H
#include <stddef.h>
#include <stdint.h>

uint64_t rt_digest(const void *bytes, size_t length);

#endif
