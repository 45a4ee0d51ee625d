/* Numbers whose reduction can be told without doing it, for every type and operation. */
#ifndef MUSTER_TESTS_SUPPORT_PATTERN_H
#define MUSTER_TESTS_SUPPORT_PATTERN_H

#include "worker/context.h"

/* The types and operations that fit each other: how many such pairs, and pair number index. */
size_t pattern_pairs(void);
void pattern_pair(size_t index, muster_type *ret_type, muster_op *ret_op);

/* Fills what `rank` contributes to the request: request->in (a broadcast: request->out), which is
 * memory of the caller's. Values are small whole numbers, so that every order of reduction gives
 * the same bits. */
void pattern_fill(const struct muster_request *request, void *in, uint32_t rank, uint32_t ranks);

/* The number of wrong elements in `out`; ret_text (size bytes) describes the first one. */
size_t pattern_check(const struct muster_request *request, uint32_t rank, uint32_t ranks,
                     char *ret_text, size_t size);

/* The same for `in`, which must still be what pattern_fill() made it. */
size_t pattern_check_input(const struct muster_request *request, uint32_t rank, uint32_t ranks,
                           char *ret_text, size_t size);

/* True if the context can be asked for this collective by its count alone. */
bool pattern_has(enum muster_collective collective);

#endif
