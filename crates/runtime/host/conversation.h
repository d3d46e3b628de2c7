/* The runner's end of the conversation with the measurer that started it, in lines over two
 * pipes. crates/runtime/src/protocol.rs has the same messages as types; docs/plan-format.md
 * describes them. */
#ifndef SQUALL_CONVERSATION_H
#define SQUALL_CONVERSATION_H
#include "reply.h"

enum { RT_PROTOCOL = 1 };

/* Answers requests until there are no more; first the reply that was made before, or the failure
 * where it was not `fine`. */
void rt_converse(rt_runner *r, int fine);

#endif
