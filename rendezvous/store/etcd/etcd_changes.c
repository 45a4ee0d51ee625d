/* The list of changes: put together, split into transactions, written as JSON. */
#include "rendezvous/store/etcd/etcd_changes.h"

#include "worker/base/cleanup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>
#include <zlib.h>

enum change_kind { CHANGE_PUT, CHANGE_DELETE, CHANGE_INSTALL, CHANGE_REMOVE };

struct muster_etcd_change {
    struct muster_etcd_change *prev, *next;
    enum change_kind kind;
    char *key, *end; /* owned; end: of a range, or NULL */
    char *value;     /* owned; lines have no checksum yet */
    size_t size, capacity;
    bool lines;
    uint64_t next_event; /* after these lines, if they are events; else 0 */
    uint64_t snapshot, record_count, first_event; /* INSTALL */
};

/* Heads ---------------------------------------------------------------------------------------- */

void muster_etcd_head_finish(struct muster_etcd_head *head)
{
    free(head->token);
    free(head->link_token);
    *head = (struct muster_etcd_head){0};
}

muster_status muster_etcd_head_copy(const struct muster_store_job *job,
                                    struct muster_etcd_head *ret_head)
{
    struct muster_etcd_head head = {.token = strdup(job->token),
                                    .link_token = strdup(job->link_token),
                                    .snapshot = job->snapshot,
                                    .record_count = job->record_count,
                                    .first_event = job->first_event};
    if (head.token == NULL || head.link_token == NULL) {
        muster_etcd_head_finish(&head);
        return muster_error_set(MUSTER_RETRY, "no memory");
    }
    *ret_head = head;
    return MUSTER_OK;
}

char *muster_etcd_head_encode(const struct muster_etcd_head *head, const char *batch)
{
    json_t *json =
        json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:s}", "token", head->token, "link_token",
                  head->link_token, "snapshot", (json_int_t)head->snapshot, "records",
                  (json_int_t)head->record_count, "first_event", (json_int_t)head->first_event,
                  "events", (json_int_t)head->events, "batch", batch);
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

muster_status muster_etcd_head_decode(const char *text, struct muster_etcd_head *ret_head)
{
    const char *token = NULL;
    const char *link_token = NULL;
    json_int_t snapshot = 0;
    json_int_t records = 0;
    json_int_t first_event = 0;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    muster_status status = MUSTER_OK;
    if (json == NULL ||
        json_unpack(json, "{s:s,s:s,s:I,s:I,s:I}", "token", &token, "link_token", &link_token,
                    "snapshot", &snapshot, "records", &records, "first_event", &first_event) != 0 ||
        snapshot < 0 || records < 0 || first_event < 0) {
        status = muster_error_set(MUSTER_INVALID, "not as a musterd writes it");
    } else {
        const struct muster_store_job job = {.token = token,
                                             .link_token = link_token,
                                             .snapshot = (uint64_t)snapshot,
                                             .record_count = (uint64_t)records,
                                             .first_event = (uint64_t)first_event};
        status = muster_etcd_head_copy(&job, ret_head);
    }
    json_decref(json);
    return status;
}

/* Checksums ------------------------------------------------------------------------------------ */

static uint32_t checksum(const char *key, const void *data, size_t size_bytes)
{
    uLong sum = crc32_z(0, (const unsigned char *)key, strlen(key));
    return (uint32_t)crc32_z(sum, data, size_bytes);
}

char *muster_etcd_seal(const char *key, const void *data, size_t size_bytes, size_t *ret_size)
{
    size_t size = MUSTER_ETCD_CHECKSUM_DIGITS + size_bytes;
    char *value = malloc(size + 1);
    if (value != NULL) {
        (void)snprintf(value, size + 1, "%08" PRIx32, checksum(key, data, size_bytes));
        memcpy(value + MUSTER_ETCD_CHECKSUM_DIGITS, size_bytes > 0 ? data : "", size_bytes);
        value[size] = '\0';
        *ret_size = size;
    }
    return value;
}

muster_status muster_etcd_unseal(const struct muster_etcd_pair *pair, const char **ret_data,
                                 size_t *ret_size)
{
    char wanted[MUSTER_ETCD_CHECKSUM_DIGITS + 1];
    if (pair->value_size >= MUSTER_ETCD_CHECKSUM_DIGITS) {
        const char *data = pair->value + MUSTER_ETCD_CHECKSUM_DIGITS;
        size_t size = pair->value_size - MUSTER_ETCD_CHECKSUM_DIGITS;
        (void)snprintf(wanted, sizeof wanted, "%08" PRIx32, checksum(pair->key, data, size));
        if (memcmp(wanted, pair->value, MUSTER_ETCD_CHECKSUM_DIGITS) == 0) {
            *ret_data = data;
            *ret_size = size;
            return MUSTER_OK;
        }
    }
    return muster_error_set(MUSTER_INVALID, "key %.300s: its checksum is another one", pair->key);
}

/* Changes -------------------------------------------------------------------------------------- */

static void destroy(struct muster_etcd_change *change)
{
    if (change != NULL) {
        free(change->key);
        free(change->end);
        free(change->value);
        free(change);
    }
}

/* NULL: no memory. */
static struct muster_etcd_change *create(enum change_kind kind, const char *key, const char *end)
{
    struct muster_etcd_change *change = calloc(1, sizeof *change);
    if (change != NULL) {
        change->kind = kind;
        change->key = strdup(key);
        change->end = end != NULL ? strdup(end) : NULL;
        if (change->key == NULL || (end != NULL && change->end == NULL)) {
            destroy(change);
            return NULL;
        }
    }
    return change;
}

/* NULL becomes the error "no memory". */
static muster_status append(struct muster_etcd_changes *changes, struct muster_etcd_change *change)
{
    if (change == NULL) {
        return muster_error_set(MUSTER_RETRY, "no memory");
    }
    DL_APPEND(changes->first, change);
    changes->open = NULL;
    changes->size_bytes += change->size;
    return MUSTER_OK;
}

/* Adds a line to the value; false: no memory. */
static bool add_line(struct muster_etcd_change *change, const char *text, size_t length)
{
    if (change->size + length + 1 > change->capacity) {
        size_t capacity = 2 * (change->size + length + 1);
        char *value = realloc(change->value, capacity);
        if (value == NULL) {
            return false;
        }
        change->value = value;
        change->capacity = capacity;
    }
    memcpy(change->value + change->size, text, length);
    change->value[change->size + length] = '\n';
    change->size += length + 1;
    return true;
}

muster_status muster_etcd_changes_event(struct muster_etcd_changes *changes, const char *folder,
                                        uint64_t sequence, const char *text)
{
    size_t length = strlen(text);
    struct muster_etcd_change *change = changes->open;
    if (change == NULL || change->size + length > MUSTER_ETCD_CHUNK_BYTES) {
        char key[MUSTER_ETCD_KEY_SIZE];
        (void)snprintf(key, sizeof key, "%sevent/%016" PRIx64, folder, sequence);
        change = create(CHANGE_PUT, key, NULL);
        if (change == NULL || !add_line(change, text, length)) {
            destroy(change);
            return muster_error_set(MUSTER_RETRY, "no memory");
        }
        change->lines = true;
        change->next_event = sequence + 1;
        TRY(append(changes, change));
        changes->open = change;
        return MUSTER_OK;
    }
    if (!add_line(change, text, length)) {
        return muster_error_set(MUSTER_RETRY, "no memory");
    }
    changes->size_bytes += length + 1;
    change->next_event = sequence + 1;
    return MUSTER_OK;
}

/* The put of this key that was not sent yet and that no deletion follows; NULL: none. */
static struct muster_etcd_change *find_put(const struct muster_etcd_changes *changes,
                                           const char *key)
{
    struct muster_etcd_change *change = changes->first != NULL ? changes->first->prev : NULL;
    while (change != NULL) {
        if (change->kind != CHANGE_PUT) {
            return NULL;
        }
        if (!change->lines && strcmp(change->key, key) == 0) {
            return change;
        }
        change = change == changes->first ? NULL : change->prev;
    }
    return NULL;
}

muster_status muster_etcd_changes_put(struct muster_etcd_changes *changes, const char *key,
                                      char *value, size_t size)
{
    struct muster_etcd_change *change = find_put(changes, key);
    if (change == NULL) {
        struct muster_etcd_change *open = changes->open;
        change = create(CHANGE_PUT, key, NULL);
        if (change == NULL) {
            free(value);
        }
        TRY(append(changes, change));
        changes->open = open; /* its events may be written before this value */
    }
    free(change->value);
    changes->size_bytes += size - change->size;
    change->value = value;
    change->size = size;
    return MUSTER_OK;
}

muster_status muster_etcd_changes_delete(struct muster_etcd_changes *changes, const char *key,
                                         const char *end)
{
    return append(changes, create(CHANGE_DELETE, key, end));
}

muster_status muster_etcd_changes_install(struct muster_etcd_changes *changes,
                                          const struct muster_store_job *job)
{
    struct muster_etcd_change *change = create(CHANGE_INSTALL, "", NULL);
    if (change != NULL) {
        change->snapshot = job->snapshot;
        change->record_count = job->record_count;
        change->first_event = job->first_event;
    }
    return append(changes, change);
}

muster_status muster_etcd_changes_remove(struct muster_etcd_changes *changes)
{
    return append(changes, create(CHANGE_REMOVE, "", NULL));
}

void muster_etcd_changes_clear(struct muster_etcd_changes *changes)
{
    while (changes->first != NULL) {
        struct muster_etcd_change *change = changes->first;
        DL_DELETE(changes->first, change);
        destroy(change);
    }
    *changes = (struct muster_etcd_changes){0};
}

/* Transactions --------------------------------------------------------------------------------- */

static bool covers(const struct muster_etcd_change *change, const char *key)
{
    return change->end == NULL ? strcmp(change->key, key) == 0
                               : strcmp(key, change->key) >= 0 && strcmp(key, change->end) < 0;
}

/* etcd refuses a transaction that changes a key twice. */
static bool conflicts(const struct muster_etcd_changes *part,
                      const struct muster_etcd_change *change)
{
    const struct muster_etcd_change *other = NULL;
    DL_FOREACH(part->first, other)
    {
        bool both_delete = other->kind == CHANGE_DELETE && change->kind == CHANGE_DELETE;
        if (other->kind != CHANGE_INSTALL && change->kind != CHANGE_INSTALL && !both_delete &&
            (covers(other, change->key) || covers(change, other->key))) {
            return true;
        }
    }
    return false;
}

void muster_etcd_changes_take(struct muster_etcd_changes *changes, size_t used_ops,
                              size_t used_bytes, struct muster_etcd_changes *ret_part,
                              bool *ret_removes)
{
    *ret_part = (struct muster_etcd_changes){0};
    *ret_removes = changes->first != NULL && changes->first->kind == CHANGE_REMOVE;
    while (changes->first != NULL) {
        struct muster_etcd_change *change = changes->first;
        bool full = used_ops >= MUSTER_ETCD_OPS_MAX ||
                    (used_bytes > 0 && used_bytes + change->size > MUSTER_ETCD_TXN_MAX_BYTES);
        if (full || (ret_part->first != NULL && change->kind == CHANGE_REMOVE) ||
            conflicts(ret_part, change)) {
            return;
        }
        DL_DELETE(changes->first, change);
        changes->open = changes->open == change ? NULL : changes->open;
        changes->size_bytes -= change->size;
        used_ops++;
        used_bytes += change->size;
        DL_APPEND(ret_part->first, change);
        ret_part->size_bytes += change->size;
        if (change->kind == CHANGE_REMOVE) {
            return;
        }
    }
}

size_t muster_etcd_changes_count(const struct muster_etcd_changes *changes)
{
    size_t count = 0;
    const struct muster_etcd_change *change = NULL;
    DL_COUNT(changes->first, change, count);
    return count;
}

static json_t *encode_put(const struct muster_etcd_change *change)
{
    if (!change->lines) {
        return muster_etcd_op_put(change->key, change->value, change->size, 0);
    }
    size_t size = 0;
    AUTO_FREE char *sealed = muster_etcd_seal(change->key, change->value, change->size, &size);
    return sealed != NULL ? muster_etcd_op_put(change->key, sealed, size, 0) : NULL;
}

bool muster_etcd_changes_write(const struct muster_etcd_changes *changes, json_t *list,
                               struct muster_etcd_head *head)
{
    bool written = true;
    const struct muster_etcd_change *change = NULL;
    DL_FOREACH(changes->first, change)
    {
        switch (change->kind) {
        case CHANGE_PUT:
            written = written && muster_etcd_add(list, encode_put(change));
            head->events = change->next_event > 0 ? change->next_event : head->events;
            break;
        case CHANGE_DELETE:
            written =
                written && muster_etcd_add(list, muster_etcd_op_delete(change->key, change->end));
            break;
        case CHANGE_INSTALL:
            head->snapshot = change->snapshot;
            head->record_count = change->record_count;
            head->first_event = change->first_event;
            break;
        default: /* the removal: the caller writes it */
            break;
        }
    }
    return written;
}
