/*
 * What a job is to change in etcd: kept in order until it is sent, as few transactions as possible.
 * Events and records are written as lines, many in one value. Locks: the caller's.
 *
 * Keys, after the prefix of the store; numbers are 16 hex digits:
 *   job/JOB                          its head: JSON
 *   epoch                            a number, which each start of a server raises
 *   owner/JOB                        the server that owns it, with that server's lease
 *   data/JOB/event/SEQUENCE          events from this one on
 *   data/JOB/snapshot/NUMBER/INDEX   records of a snapshot from this one on
 *   data/JOB/value/GENERATION/KEY    a value
 * Every value but an owner's begins with the checksum of its key and the rest, as 8 hex digits.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_ETCD_ETCD_CHANGES_H
#define MUSTER_RENDEZVOUS_STORE_ETCD_ETCD_CHANGES_H

#include "rendezvous/store/etcd/etcd_wire.h"
#include "rendezvous/store/store.h"

enum {
    MUSTER_ETCD_JOB_SIZE = 80,
    MUSTER_ETCD_CHUNK_BYTES = 64 * 1024,     /* of lines in one value */
    MUSTER_ETCD_OPS_MAX = 100,               /* of one transaction; etcd allows 128 */
    MUSTER_ETCD_TXN_MAX_BYTES = 1024 * 1024, /* of values; etcd allows 1.5 MiB */
    MUSTER_ETCD_CHECKSUM_DIGITS = 8,
};

/* The head of a job, which every transaction of it replaces. */
struct muster_etcd_head {
    char *token, *link_token; /* owned */
    uint64_t snapshot, record_count, first_event;
    uint64_t events; /* the sequence number of the next */
};
void muster_etcd_head_finish(struct muster_etcd_head *head);
MUSTER_CHECKED muster_status muster_etcd_head_copy(const struct muster_store_job *job,
                                                   struct muster_etcd_head *ret_head);
/* batch: names the transaction that writes it, so that its writer knows it again. NULL: no memory.
 */
char *muster_etcd_head_encode(const struct muster_etcd_head *head, const char *batch);
MUSTER_CHECKED muster_status muster_etcd_head_decode(const char *text,
                                                     struct muster_etcd_head *ret_head);

/* Appends the checksum and the data to a value; NULL: no memory. */
char *muster_etcd_seal(const char *key, const void *data, size_t size_bytes, size_t *ret_size);
/* Where the data of a value begin. MUSTER_INVALID: it is not as it was written. */
MUSTER_CHECKED muster_status muster_etcd_unseal(const struct muster_etcd_pair *pair,
                                                const char **ret_data, size_t *ret_size);

struct muster_etcd_change;

struct muster_etcd_changes {
    struct muster_etcd_change *first;
    struct muster_etcd_change *open; /* the last, if it is of events and has room */
    size_t size_bytes;
};

/* Each returns MUSTER_RETRY if there is no memory; then nothing is changed. */
MUSTER_CHECKED muster_status muster_etcd_changes_event(struct muster_etcd_changes *changes,
                                                       const char *folder, uint64_t sequence,
                                                       const char *text);
/* Takes the value. A put of the same key that was not sent yet is replaced. */
MUSTER_CHECKED muster_status muster_etcd_changes_put(struct muster_etcd_changes *changes,
                                                     const char *key, char *value, size_t size);
/* end: NULL, or the end of a range. */
MUSTER_CHECKED muster_status muster_etcd_changes_delete(struct muster_etcd_changes *changes,
                                                        const char *key, const char *end);
MUSTER_CHECKED muster_status muster_etcd_changes_install(struct muster_etcd_changes *changes,
                                                         const struct muster_store_job *job);
/* The job itself goes: its data, its head and its owner. */
MUSTER_CHECKED muster_status muster_etcd_changes_remove(struct muster_etcd_changes *changes);

void muster_etcd_changes_clear(struct muster_etcd_changes *changes);

/* Moves the first changes, as many as fit into one transaction beside `used` operations and bytes,
 * to *ret_part. *ret_removes: they end with the removal of the job, which is a transaction of its
 * own. */
void muster_etcd_changes_take(struct muster_etcd_changes *changes, size_t used_ops,
                              size_t used_bytes, struct muster_etcd_changes *ret_part,
                              bool *ret_removes);
size_t muster_etcd_changes_count(const struct muster_etcd_changes *changes);
/* Appends the operations to a list, and applies to *head what they change of it. False: no memory.
 */
bool muster_etcd_changes_write(const struct muster_etcd_changes *changes, json_t *list,
                               struct muster_etcd_head *head);

#endif
