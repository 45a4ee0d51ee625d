/* A table of frames that have arrived before their transfers were posted. */
#include "worker/fabric/wire/unexpected.h"

#include <stdlib.h>
#include <utlist.h>

struct muster_unexpected *muster_unexpected_create(const struct muster_frame *frame)
{
    struct muster_unexpected *unexpected = malloc(sizeof *unexpected + frame->length);
    if (unexpected != NULL) {
        unexpected->frame = *frame;
        unexpected->next = NULL;
        unexpected->prev = NULL;
    }
    return unexpected;
}

bool muster_unexpected_insert(struct muster_unexpected_table *table,
                              struct muster_unexpected *unexpected)
{
    if (table->count >= MUSTER_UNEXPECTED_MAX) {
        return false;
    }
    DL_APPEND(table->buckets[muster_key_bucket(&unexpected->frame.key)], unexpected);
    table->count++;
    return true;
}

bool muster_unexpected_holds(const struct muster_unexpected_table *table,
                             const struct muster_message_key *key)
{
    const struct muster_unexpected *unexpected = NULL;
    DL_FOREACH(table->buckets[muster_key_bucket(key)], unexpected)
    {
        if (unexpected->frame.kind == MUSTER_FRAME_EAGER &&
            muster_key_equal(&unexpected->frame.key, key)) {
            return true;
        }
    }
    return false;
}

struct muster_unexpected *muster_unexpected_take(struct muster_unexpected_table *table,
                                                 const struct muster_message_key *key, bool grant)
{
    struct muster_unexpected **bucket = &table->buckets[muster_key_bucket(key)];
    struct muster_unexpected *unexpected = NULL;
    DL_FOREACH(*bucket, unexpected)
    {
        if ((unexpected->frame.kind == MUSTER_FRAME_GRANT) == grant &&
            muster_key_equal(&unexpected->frame.key, key)) {
            DL_DELETE(*bucket, unexpected);
            table->count--;
            return unexpected;
        }
    }
    return NULL;
}

struct muster_unexpected *muster_unexpected_take_offer(struct muster_unexpected_table *table,
                                                       const struct muster_message_key *key)
{
    struct muster_unexpected **bucket = &table->buckets[muster_key_bucket(key)];
    struct muster_unexpected *unexpected = NULL;
    DL_FOREACH(*bucket, unexpected)
    {
        if (unexpected->frame.kind == MUSTER_FRAME_OFFER &&
            muster_key_equal(&unexpected->frame.key, key)) {
            DL_DELETE(*bucket, unexpected);
            table->count--;
            return unexpected;
        }
    }
    return NULL;
}

uint64_t muster_unexpected_drop(struct muster_unexpected_table *table,
                                const struct muster_operation_id *operation, uint64_t generation)
{
    uint64_t credit = 0;
    for (uint32_t i = 0; i < MUSTER_TRANSFER_BUCKETS && table->count > 0; i++) {
        struct muster_unexpected *unexpected = NULL;
        struct muster_unexpected *next = NULL;
        DL_FOREACH_SAFE(table->buckets[i], unexpected, next)
        {
            const struct muster_message_key *key = &unexpected->frame.key;
            if (operation != NULL ? muster_operation_has(operation, key)
                                  : key->generation < generation) {
                DL_DELETE(table->buckets[i], unexpected);
                table->count--;
                credit += muster_unexpected_charge(&unexpected->frame);
                free(unexpected);
            }
        }
    }
    return credit;
}

uint64_t muster_unexpected_charge(const struct muster_frame *frame)
{
    return frame->kind == MUSTER_FRAME_EAGER ? frame->length + MUSTER_EAGER_CHARGE_BYTES : 0;
}
