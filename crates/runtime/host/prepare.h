/* Packing of the weights of a network's calls before the first run: each call's by one thread,
 * several calls at once. */
#ifndef SQUALL_PREPARE_H
#define SQUALL_PREPARE_H
#include "network.h"

/* The buffer that a call's weights are packed into, if they are. */
const rt_buffer *rt_packed_of(const rt_plan *p, const rt_step *s);
/* Packs the weights of all calls whose packed weights are not there yet. */
int rt_prepare_all(rt_network *n);

#endif
