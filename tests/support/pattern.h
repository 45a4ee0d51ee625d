/* Values whose reduction is known in advance, for every type and operation. */
#ifndef MUSTER_TESTS_SUPPORT_PATTERN_H
#define MUSTER_TESTS_SUPPORT_PATTERN_H

#include "worker/context/context.h"

/* The pairs of a type and an operation that are allowed together: their number, and each by index.
 */
size_t pattern_pairs(void);
void pattern_pair(size_t index, muster_type *ret_type, muster_op *ret_op);

/* A function for operation USER: the larger one. */
void pattern_user(void *out, const void *left, const void *right, size_t count, muster_type type,
                  void *user_data);

/* For these functions a request has no counts for each rank, or those of pattern_make_counts().
 *
 * Fills the input of `rank`: `in` is the caller's memory behind request->in (in a broadcast:
 * request->out). Values are small whole numbers, so that every order of reduction gives the same
 * bits. */
void pattern_fill(const struct muster_request *request, void *in, uint32_t rank, uint32_t ranks);

/* Returns the number of wrong elements in request->out; ret_text (size bytes) describes the first.
 */
size_t pattern_check(const struct muster_request *request, uint32_t rank, uint32_t ranks,
                     char *ret_text, size_t size);

/* The same for request->in, which must be as pattern_fill() left it. */
size_t pattern_check_input(const struct muster_request *request, uint32_t rank, uint32_t ranks,
                           char *ret_text, size_t size);

/* Gives the request counts for each rank if its collective has blocks. They differ, and depend on
 * request->count only, so that all ranks make the same. Free them with pattern_free_counts(). */
void pattern_make_counts(struct muster_request *request, uint32_t rank, uint32_t ranks);
void pattern_free_counts(struct muster_request *request);

/* The offset of `in` from `out`, in elements, for a call in place. */
int64_t pattern_in_place_offset(const struct muster_request *request, uint32_t rank,
                                uint32_t ranks);

#endif
