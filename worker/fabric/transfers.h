/*
 * Lists of transfers, and tables of them by key. They link the caller's own records (next,
 * previous), so that posting allocates nothing; a transfer is in one list or table at a time.
 *
 * Threads: under the lock of the list's owner.
 */
#ifndef MUSTER_WORKER_FABRIC_TRANSFERS_H
#define MUSTER_WORKER_FABRIC_TRANSFERS_H

#include "worker/fabric/fabric.h"

enum { MUSTER_TRANSFER_BUCKETS = 64 }; /* a power of two */

struct muster_transfer_list {
    struct muster_transfer *first, *last;
    uint32_t count;
};

struct muster_transfer_table {
    struct muster_transfer_list buckets[MUSTER_TRANSFER_BUCKETS];
    uint32_t count;
};

/* Identifies one operation, for withdrawing and aborting it. */
struct muster_operation_id {
    uint64_t generation;
    uint64_t sequence;
    uint32_t context;
};

bool muster_key_equal(const struct muster_message_key *a, const struct muster_message_key *b);
struct muster_operation_id muster_key_operation(const struct muster_message_key *key);
bool muster_operation_has(const struct muster_operation_id *operation,
                          const struct muster_message_key *key);
uint32_t muster_key_bucket(const struct muster_message_key *key);

void muster_transfer_list_append(struct muster_transfer_list *list,
                                 struct muster_transfer *transfer);
/* Inserts it behind all that have the same priority or a higher one, in a list that is in this
 * order. */
void muster_transfer_list_insert(struct muster_transfer_list *list,
                                 struct muster_transfer *transfer);
void muster_transfer_list_remove(struct muster_transfer_list *list,
                                 struct muster_transfer *transfer);
/* Takes out the first one; NULL if there is none. */
struct muster_transfer *muster_transfer_list_pop(struct muster_transfer_list *list);
/* Moves all transfers of the operation from one list to the end of another. */
void muster_transfer_list_move(struct muster_transfer_list *list,
                               const struct muster_operation_id *operation,
                               struct muster_transfer_list *target);
/* Moves all transfers to the end of another list. */
void muster_transfer_list_splice(struct muster_transfer_list *list,
                                 struct muster_transfer_list *target);

void muster_transfer_table_insert(struct muster_transfer_table *table,
                                  struct muster_transfer *transfer);
void muster_transfer_table_remove(struct muster_transfer_table *table,
                                  struct muster_transfer *transfer);
struct muster_transfer *muster_transfer_table_find(const struct muster_transfer_table *table,
                                                   const struct muster_message_key *key);
/* Any transfer of the operation; NULL if there is none. */
struct muster_transfer *muster_transfer_table_any(const struct muster_transfer_table *table,
                                                  const struct muster_operation_id *operation);
void muster_transfer_table_move(struct muster_transfer_table *table,
                                const struct muster_operation_id *operation,
                                struct muster_transfer_list *target);
void muster_transfer_table_splice(struct muster_transfer_table *table,
                                  struct muster_transfer_list *target);

#endif
