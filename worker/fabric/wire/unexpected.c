#include "worker/fabric/wire/unexpected.h"

#include <stdlib.h>
#include <utlist.h>

struct muster_unexpected *muster_unexpected_create(const struct muster_frame *frame)
{
    struct muster_unexpected *early = malloc(sizeof *early + frame->length);
    if (early != NULL) {
        early->frame = *frame;
        early->next = NULL;
        early->prev = NULL;
    }
    return early;
}

bool muster_unexpected_insert(struct muster_unexpected_table *table,
                              struct muster_unexpected *early)
{
    if (table->count >= MUSTER_UNEXPECTED_MAX) {
        return false;
    }
    DL_APPEND(table->buckets[muster_key_bucket(&early->frame.key)], early);
    table->count++;
    return true;
}

bool muster_unexpected_holds(const struct muster_unexpected_table *table,
                             const struct muster_message_key *key)
{
    const struct muster_unexpected *early = NULL;
    DL_FOREACH(table->buckets[muster_key_bucket(key)], early)
    {
        if (early->frame.kind == MUSTER_FRAME_EAGER && muster_key_equal(&early->frame.key, key)) {
            return true;
        }
    }
    return false;
}

struct muster_unexpected *muster_unexpected_take(struct muster_unexpected_table *table,
                                                 const struct muster_message_key *key, bool grant)
{
    struct muster_unexpected **bucket = &table->buckets[muster_key_bucket(key)];
    struct muster_unexpected *early = NULL;
    DL_FOREACH(*bucket, early)
    {
        if ((early->frame.kind == MUSTER_FRAME_GRANT) == grant &&
            muster_key_equal(&early->frame.key, key)) {
            DL_DELETE(*bucket, early);
            table->count--;
            return early;
        }
    }
    return NULL;
}

uint64_t muster_unexpected_drop(struct muster_unexpected_table *table,
                                const struct muster_operation_id *operation, uint64_t generation)
{
    uint64_t credit = 0;
    for (uint32_t i = 0; i < MUSTER_TRANSFER_BUCKETS && table->count > 0; i++) {
        struct muster_unexpected *early = NULL;
        struct muster_unexpected *next = NULL;
        DL_FOREACH_SAFE(table->buckets[i], early, next)
        {
            const struct muster_message_key *key = &early->frame.key;
            if (operation != NULL ? muster_operation_has(operation, key)
                                  : key->generation < generation) {
                DL_DELETE(table->buckets[i], early);
                table->count--;
                credit += muster_unexpected_charge(&early->frame);
                free(early);
            }
        }
    }
    return credit;
}

uint64_t muster_unexpected_charge(const struct muster_frame *frame)
{
    return frame->kind == MUSTER_FRAME_EAGER ? frame->length + MUSTER_EAGER_CHARGE_BYTES : 0;
}
