/*
 * How process sets are numbered on the wire. Pure.
 *
 * Threads create sets in any order, so a set's number cannot come from a counter. The members of a
 * set know its name, and everything here follows from the name; the generation is in every frame.
 *
 *   context number             of
 *   below 2^28                 the communicator itself: scopes, figures, state; 2^28 - 1: the lists
 *                              of process sets (set_lists.h), announced
 *   2^28 + hash (27 bits)      a set that was created: one of MUSTER_SET_CANDIDATES hashes of its
 *                              name, the first one that no other set of any of its members has
 *   2^28 + 2^27 + place        a set that an earlier generation left: its place among all sets of
 *                              the job, which all members know
 *   2^29 + hash (28 bits)      the exchange by which the members of a name create the set; a second
 *                              hash of the name and the number of the creation are its sequence
 *   2^29 + 2^28 + 28 bits      named tensors of the scope or set whose number has these lower bits;
 * of the three scopes: 2^30 - 256 + scope bit 30, bit 31             calls in flight; point to
 * point
 *
 * May use: zlib, uthash, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_SET_NUMBERS_H
#define MUSTER_WORKER_COMMUNICATOR_SET_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

enum {
    MUSTER_SET_CANDIDATES = 8, /* numbers that a set may get */
    MUSTER_SET_HASH_BITS = 27,
    MUSTER_SET_NUMBERS = 1 << 28,
    MUSTER_SET_LEFT_NUMBERS = MUSTER_SET_NUMBERS | 1 << MUSTER_SET_HASH_BITS,
    MUSTER_SET_CREATION_NUMBERS = 1 << 29,
    MUSTER_TENSOR_NUMBERS = 3 << 28,
    MUSTER_TENSOR_SCOPE_NUMBERS = (1 << 30) - 256,
};

/* The numbers that the set of this name may get. creation: how often the name has been created in
 * the generation, from 1; the same on all members. */
void muster_set_candidates(const char *name, uint32_t creation,
                           uint32_t ret_numbers[MUSTER_SET_CANDIDATES]);

/* The exchange that creates it: its context and its sequence. */
void muster_set_creation_key(const char *name, uint32_t creation, uint32_t *ret_context,
                             uint64_t *ret_sequence);

/* A checksum of a list of ranks, in their order. */
uint32_t muster_set_list_checksum(const uint32_t *ranks, size_t count);

/* Identifies a set among all sets of a generation: its name and the ranks of its members. */
uint64_t muster_set_digest(const char *name, const uint32_t *ranks, size_t count);

#endif
