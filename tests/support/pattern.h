/* Numbers whose reduction can be told without doing it, for every type and operation. */
#ifndef MUSTER_TESTS_SUPPORT_PATTERN_H
#define MUSTER_TESTS_SUPPORT_PATTERN_H

#include "worker/context/context.h"

/* The types and operations that fit each other: how many such pairs, and pair number index. */
size_t pattern_pairs(void);
void pattern_pair(size_t index, muster_type *ret_type, muster_op *ret_op);

/* A function for operation USER: the larger one. */
void pattern_user(void *out, const void *left, const void *right, size_t count, muster_type type,
                  void *user_data);

/* In what follows a request has no counts for each rank, or those of pattern_make_counts().
 *
 * Fills what `rank` contributes to the request: request->in (a broadcast: request->out), which is
 * memory of the caller's. Values are small whole numbers, so that every order of reduction gives
 * the same bits. */
void pattern_fill(const struct muster_request *request, void *in, uint32_t rank, uint32_t ranks);

/* The number of wrong elements in `out`; ret_text (size bytes) describes the first one. */
size_t pattern_check(const struct muster_request *request, uint32_t rank, uint32_t ranks,
                     char *ret_text, size_t size);

/* The same for `in`, which must still be what pattern_fill() made it. */
size_t pattern_check_input(const struct muster_request *request, uint32_t rank, uint32_t ranks,
                           char *ret_text, size_t size);

/* Gives the request counts for each rank where its collective has blocks: of different sizes, made
 * up from request->count in the same way for all who ask. pattern_free_counts() it. */
void pattern_make_counts(struct muster_request *request, uint32_t rank, uint32_t ranks);
void pattern_free_counts(struct muster_request *request);

/* Elements of in, counted from out, where both are to share memory. */
int64_t pattern_in_place_offset(const struct muster_request *request, uint32_t rank,
                                uint32_t ranks);

#endif
