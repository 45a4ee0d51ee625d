/* Lists of transfers, and tables of them by key. */
#include "worker/fabric/transfers.h"

bool muster_key_equal(const struct muster_message_key *a, const struct muster_message_key *b)
{
    return a->sequence == b->sequence && a->ordinal == b->ordinal && a->lane == b->lane &&
           a->context == b->context && a->generation == b->generation;
}

struct muster_operation_id muster_key_operation(const struct muster_message_key *key)
{
    return (struct muster_operation_id){
        .generation = key->generation, .sequence = key->sequence, .context = key->context};
}

bool muster_operation_has(const struct muster_operation_id *operation,
                          const struct muster_message_key *key)
{
    return operation->sequence == key->sequence && operation->context == key->context &&
           operation->generation == key->generation;
}

uint32_t muster_key_bucket(const struct muster_message_key *key)
{
    /* Lanes and ordinals are small and dense; odd factors spread them over the buckets. */
    uint64_t mixed = key->sequence * 31 + key->context * 17 + key->lane * 7u + key->ordinal;
    return (uint32_t)mixed & (MUSTER_TRANSFER_BUCKETS - 1);
}

static void insert_after(struct muster_transfer_list *list, struct muster_transfer *previous,
                         struct muster_transfer *transfer)
{
    transfer->previous = previous;
    transfer->next = previous != NULL ? previous->next : list->first;
    if (transfer->next != NULL) {
        transfer->next->previous = transfer;
    } else {
        list->last = transfer;
    }
    if (previous != NULL) {
        previous->next = transfer;
    } else {
        list->first = transfer;
    }
    list->count++;
}

void muster_transfer_list_append(struct muster_transfer_list *list,
                                 struct muster_transfer *transfer)
{
    insert_after(list, list->last, transfer);
}

void muster_transfer_list_insert(struct muster_transfer_list *list,
                                 struct muster_transfer *transfer)
{
    struct muster_transfer *previous = list->last;
    while (previous != NULL && previous->priority < transfer->priority) {
        previous = previous->previous;
    }
    insert_after(list, previous, transfer);
}

void muster_transfer_list_remove(struct muster_transfer_list *list,
                                 struct muster_transfer *transfer)
{
    if (transfer->previous != NULL) {
        transfer->previous->next = transfer->next;
    } else {
        list->first = transfer->next;
    }
    if (transfer->next != NULL) {
        transfer->next->previous = transfer->previous;
    } else {
        list->last = transfer->previous;
    }
    transfer->next = NULL;
    transfer->previous = NULL;
    list->count--;
}

struct muster_transfer *muster_transfer_list_pop(struct muster_transfer_list *list)
{
    struct muster_transfer *first = list->first;
    if (first != NULL) {
        muster_transfer_list_remove(list, first);
    }
    return first;
}

void muster_transfer_list_move(struct muster_transfer_list *list,
                               const struct muster_operation_id *operation,
                               struct muster_transfer_list *target)
{
    struct muster_transfer *next = NULL;
    for (struct muster_transfer *transfer = list->first; transfer != NULL; transfer = next) {
        next = transfer->next;
        if (muster_operation_has(operation, &transfer->key)) {
            muster_transfer_list_remove(list, transfer);
            muster_transfer_list_append(target, transfer);
        }
    }
}

void muster_transfer_list_splice(struct muster_transfer_list *list,
                                 struct muster_transfer_list *target)
{
    struct muster_transfer *transfer = NULL;
    while ((transfer = muster_transfer_list_pop(list)) != NULL) {
        muster_transfer_list_append(target, transfer);
    }
}

void muster_transfer_table_insert(struct muster_transfer_table *table,
                                  struct muster_transfer *transfer)
{
    muster_transfer_list_append(&table->buckets[muster_key_bucket(&transfer->key)], transfer);
    table->count++;
}

void muster_transfer_table_remove(struct muster_transfer_table *table,
                                  struct muster_transfer *transfer)
{
    muster_transfer_list_remove(&table->buckets[muster_key_bucket(&transfer->key)], transfer);
    table->count--;
}

struct muster_transfer *muster_transfer_table_find(const struct muster_transfer_table *table,
                                                   const struct muster_message_key *key)
{
    struct muster_transfer *transfer = table->buckets[muster_key_bucket(key)].first;
    while (transfer != NULL && !muster_key_equal(&transfer->key, key)) {
        transfer = transfer->next;
    }
    return transfer;
}

struct muster_transfer *muster_transfer_table_any(const struct muster_transfer_table *table,
                                                  const struct muster_operation_id *operation)
{
    for (uint32_t i = 0; i < MUSTER_TRANSFER_BUCKETS && table->count > 0; i++) {
        struct muster_transfer *transfer = table->buckets[i].first;
        while (transfer != NULL && !muster_operation_has(operation, &transfer->key)) {
            transfer = transfer->next;
        }
        if (transfer != NULL) {
            return transfer;
        }
    }
    return NULL;
}

void muster_transfer_table_move(struct muster_transfer_table *table,
                                const struct muster_operation_id *operation,
                                struct muster_transfer_list *target)
{
    uint32_t before = target->count;
    for (uint32_t i = 0; i < MUSTER_TRANSFER_BUCKETS && table->count > 0; i++) {
        muster_transfer_list_move(&table->buckets[i], operation, target);
    }
    table->count -= target->count - before;
}

void muster_transfer_table_splice(struct muster_transfer_table *table,
                                  struct muster_transfer_list *target)
{
    for (uint32_t i = 0; i < MUSTER_TRANSFER_BUCKETS && table->count > 0; i++) {
        muster_transfer_list_splice(&table->buckets[i], target);
    }
    table->count = 0;
}
