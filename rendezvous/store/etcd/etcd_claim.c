/* Claims a job and reads what etcd has of it. */
#include "rendezvous/store/etcd/store_etcd_parts.h"
#include "worker/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    PAGE_KEYS = 64, /* of one range; a value has 64 KiB at most */
    CLAIM_TRIES = 4,
    SEQUENCE_DIGITS = 16,
};

/* Owners ----------------------------------------------------------------------------------------
 */

/* What the transaction that claims a job has led to. */
struct claim_attempt {
    int64_t owner_revision;
    struct muster_etcd_pair owner, head; /* as found */
    bool claimed, elsewhere;
};

static void finish_attempt(struct claim_attempt *attempt)
{
    muster_etcd_pair_finish(&attempt->owner);
    muster_etcd_pair_finish(&attempt->head);
}

/* The value of an owner is "URL INSTANCE". */
static bool is_ours(const struct etcd_store *store, const struct muster_etcd_pair *owner)
{
    const char *space = strchr(owner->value, ' ');
    return space != NULL && strcmp(space + 1, store->session.instance) == 0;
}

static json_t *write_claim(const struct etcd_store *store, const char *name, bool create,
                           int64_t revision)
{
    char owner[MUSTER_ETCD_KEY_SIZE];
    char head[MUSTER_ETCD_KEY_SIZE];
    char value[MUSTER_STORE_URL_SIZE + MUSTER_UUID_SIZE];
    muster_etcd_key(store, "owner", name, owner);
    muster_etcd_key(store, "job", name, head);
    (void)snprintf(value, sizeof value, "%s %s", store->session.url, store->session.instance);
    json_t *compare = json_pack("[o]", muster_etcd_compare(owner, revision));
    if (!create && compare != NULL && !muster_etcd_add(compare, muster_etcd_compare_there(head))) {
        json_decref(compare);
        compare = NULL;
    }
    return muster_etcd_transaction(
        compare,
        json_pack(
            "[o,o]",
            muster_etcd_op_put(owner, value, strlen(value), atomic_load(&store->session.lease)),
            muster_etcd_op_range(head)),
        json_pack("[o,o]", muster_etcd_op_range(owner), muster_etcd_op_range(head)));
}

static muster_status read_found(const json_t *answer, size_t index, struct muster_etcd_pair *pair)
{
    const json_t *found = muster_etcd_found(answer, index);
    return found != NULL ? muster_etcd_pair_read(found, pair) : MUSTER_OK;
}

/* One transaction. An owner that is an earlier one of this process is replaced, by the next. */
static muster_status try_claim(struct etcd_store *store, const char *name, bool create,
                               int64_t *revision, struct claim_attempt *attempt)
{
    json_t *answer = NULL;
    TRY(muster_etcd_call(store->client, "kv/txn", write_claim(store, name, create, *revision),
                         muster_clock_after_ms(MUSTER_ETCD_CALL_MS), &answer));
    bool done = json_is_true(json_object_get(answer, "succeeded"));
    muster_status status = read_found(answer, 1, &attempt->head);
    if (status == MUSTER_OK && !done) {
        status = read_found(answer, 0, &attempt->owner);
    }
    int64_t now = muster_etcd_revision(answer);
    json_decref(answer);
    TRY(status);
    *revision = attempt->owner.revision;
    if (done) {
        attempt->claimed = true;
        attempt->owner_revision = now;
    } else if (attempt->owner.value != NULL && is_ours(store, &attempt->owner)) {
        attempt->claimed = attempt->owner.lease == atomic_load(&store->session.lease);
        attempt->owner_revision = attempt->owner.revision;
    } else {
        attempt->elsewhere = attempt->owner.value != NULL;
    }
    return MUSTER_OK;
}

/* *ret_attempt: claimed, elsewhere, or neither: nobody has the job, and there is none. */
static muster_status claim_owner(struct etcd_store *store, const char *name, bool create,
                                 struct claim_attempt *ret_attempt)
{
    int64_t revision = 0;
    for (int i = 0; i < CLAIM_TRIES; i++) {
        struct claim_attempt attempt = {0};
        muster_status status = try_claim(store, name, create, &revision, &attempt);
        bool nobody = attempt.owner.value == NULL && attempt.head.value == NULL && !create;
        if (status == MUSTER_OK && (attempt.claimed || attempt.elsewhere || nobody)) {
            *ret_attempt = attempt;
            return MUSTER_OK;
        }
        finish_attempt(&attempt);
        TRY(status);
    }
    return muster_error_set(MUSTER_RETRY, "store %s: job %s changes its owner: try again",
                            muster_etcd_client_name(store->client), name);
}

/* Reading ---------------------------------------------------------------------------------------
 */

/* Called for each pair of a range; false in *ret_more ends it. */
typedef muster_status (*see_pair)(void *user, const struct muster_etcd_pair *pair, bool *ret_more);

static muster_status see_page(const json_t *answer, see_pair see, void *user, char *ret_next,
                              bool *ret_more)
{
    size_t index = 0;
    const json_t *item = NULL;
    const json_t *list = json_object_get(answer, "kvs");
    *ret_more = json_is_true(json_object_get(answer, "more"));
    json_array_foreach(list, index, item)
    {
        struct muster_etcd_pair pair = {0};
        bool more = true;
        TRY(muster_etcd_pair_read(item, &pair));
        if (pair.key_size + 2 > MUSTER_ETCD_KEY_SIZE) {
            muster_etcd_pair_finish(&pair);
            return muster_error_set(MUSTER_INVALID, "a key of more than %d bytes",
                                    MUSTER_ETCD_KEY_SIZE);
        }
        (void)snprintf(ret_next, MUSTER_ETCD_KEY_SIZE, "%s\x01", pair.key);
        muster_status status = see(user, &pair, &more);
        muster_etcd_pair_finish(&pair);
        TRY(status);
        if (!more) {
            *ret_more = false;
            return MUSTER_OK;
        }
    }
    return MUSTER_OK;
}

/* Reads all keys from `from` on that begin with `folder`, a page at a time. */
static muster_status read_range(struct etcd_store *store, const char *folder, const char *from,
                                see_pair see, void *user)
{
    char at[MUSTER_ETCD_KEY_SIZE];
    char end[MUSTER_ETCD_KEY_SIZE];
    bool more = true;
    (void)snprintf(at, sizeof at, "%s", from);
    muster_etcd_end_of(folder, end);
    while (more) {
        json_t *answer = NULL;
        const struct muster_etcd_keys keys = {.key = at, .end = end, .limit = PAGE_KEYS};
        TRY(muster_etcd_call(store->client, "kv/range", muster_etcd_range(&keys),
                             muster_clock_after_ms(MUSTER_ETCD_CALL_MS), &answer));
        muster_status status = see_page(answer, see, user, at, &more);
        json_decref(answer);
        TRY(status);
    }
    return MUSTER_OK;
}

struct row_reader {
    const struct muster_store_reader *reader;
    const struct muster_store_job *job;
    bool of_snapshot;
    uint64_t from, end; /* rows below and from there on are skipped */
    size_t count;
    bool damaged; /* nothing more of the job is passed on */
};

static muster_status report_damage(struct row_reader *rows)
{
    rows->damaged = true;
    return rows->reader->damaged(rows->reader->user, rows->job, muster_last_error());
}

/* The lines of one value are rows whose numbers begin with that in the key. */
static muster_status see_lines(void *user, const struct muster_etcd_pair *pair, bool *ret_more)
{
    struct row_reader *rows = user;
    const char *data = NULL;
    size_t size = 0;
    const char *slash = strrchr(pair->key, '/');
    uint64_t number = slash != NULL ? strtoull(slash + 1, NULL, 16) : 0;
    if (rows->damaged) {
        return MUSTER_OK;
    }
    if (muster_etcd_unseal(pair, &data, &size) != MUSTER_OK) {
        return report_damage(rows);
    }
    while (size > 0) {
        const char *end = memchr(data, '\n', size);
        size_t length = end != NULL ? (size_t)(end - data) : size;
        if (number >= rows->end) {
            *ret_more = false;
            return MUSTER_OK;
        }
        if (number >= rows->from) {
            TRY((rows->of_snapshot ? rows->reader->record : rows->reader->event)(
                rows->reader->user, number, data, length));
            rows->count++;
        }
        number++;
        size -= end != NULL ? length + 1 : length;
        data += length + 1;
    }
    return MUSTER_OK;
}

static muster_status see_value(void *user, const struct muster_etcd_pair *pair, bool *ret_more)
{
    struct row_reader *rows = user;
    const char *data = NULL;
    size_t size = 0;
    *ret_more = true;
    const char *at = strstr(pair->key, "/value/");
    if (rows->damaged) {
        return MUSTER_OK;
    }
    if (at == NULL || strlen(at) < strlen("/value/") + SEQUENCE_DIGITS + 1) {
        (void)muster_error_set(MUSTER_INVALID, "key %.300s: no value has it", pair->key);
        return report_damage(rows);
    }
    if (muster_etcd_unseal(pair, &data, &size) != MUSTER_OK) {
        return report_damage(rows);
    }
    at += strlen("/value/");
    return rows->reader->value(rows->reader->user, strtoull(at, NULL, 16), at + SEQUENCE_DIGITS + 1,
                               data, size);
}

/* The last key up to this number: its lines have that of the number, if there is one. */
muster_status muster_etcd_find_chunk(struct etcd_store *store, const char *name, uint64_t sequence,
                                     char ret_key[MUSTER_ETCD_KEY_SIZE])
{
    char folder[MUSTER_ETCD_KEY_SIZE];
    char from[MUSTER_ETCD_KEY_SIZE];
    char end[MUSTER_ETCD_KEY_SIZE];
    json_t *answer = NULL;
    muster_etcd_folder(store, name, folder);
    (void)snprintf(from, sizeof from, "%.500sevent/", folder);
    (void)snprintf(end, sizeof end, "%.500sevent/%016" PRIx64 "\x01", folder, sequence);
    const struct muster_etcd_keys keys = {
        .key = from, .end = end, .limit = 1, .last = true, .keys_only = true};
    TRY(muster_etcd_call(store->client, "kv/range", muster_etcd_range(&keys),
                         muster_clock_after_ms(MUSTER_ETCD_CALL_MS), &answer));
    struct muster_etcd_pair pair = {0};
    const json_t *found = json_array_get(json_object_get(answer, "kvs"), 0);
    muster_status status =
        found != NULL
            ? muster_etcd_pair_read(found, &pair)
            : muster_error_set(MUSTER_INVALID, "job %s: no event %" PRIu64, name, sequence);
    if (status == MUSTER_OK) {
        (void)snprintf(ret_key, MUSTER_ETCD_KEY_SIZE, "%s", pair.key);
    }
    muster_etcd_pair_finish(&pair);
    json_decref(answer);
    return status;
}

/* Records are read by the chunks in which they were staged. */
muster_status muster_etcd_read_rows(struct muster_store *base, const struct muster_store_job *job,
                                    struct muster_store_range range,
                                    const struct muster_store_reader *reader, size_t *ret_count)
{
    struct etcd_store *store = (struct etcd_store *)base;
    char folder[MUSTER_ETCD_KEY_SIZE];
    char rows_folder[MUSTER_ETCD_KEY_SIZE];
    char from[MUSTER_ETCD_KEY_SIZE];
    struct row_reader rows = {.reader = reader,
                              .job = job,
                              .of_snapshot = range.of_snapshot,
                              .from = range.from,
                              .end = range.from + range.max};
    *ret_count = 0;
    TRY(muster_etcd_flush_job(store, job->name));
    muster_etcd_folder(store, job->name, folder);
    if (range.of_snapshot) {
        (void)snprintf(rows_folder, sizeof rows_folder, "%.500ssnapshot/%016" PRIx64 "/", folder,
                       job->snapshot);
        (void)snprintf(from, sizeof from, "%.600s%016" PRIx64, rows_folder, range.from);
    } else {
        (void)snprintf(rows_folder, sizeof rows_folder, "%.500sevent/", folder);
        TRY(muster_etcd_find_chunk(store, job->name, range.from, from));
    }
    TRY(read_range(store, rows_folder, from, see_lines, &rows));
    *ret_count = rows.count;
    return MUSTER_OK;
}

muster_status muster_etcd_read_job(struct etcd_store *store, const struct muster_store_job *job,
                                   const struct muster_store_reader *reader)
{
    char folder[MUSTER_ETCD_KEY_SIZE];
    char part[MUSTER_ETCD_KEY_SIZE];
    struct row_reader rows = {.reader = reader, .job = job, .of_snapshot = true, .end = UINT64_MAX};
    muster_etcd_folder(store, job->name, folder);
    if (job->snapshot != 0) {
        (void)snprintf(part, sizeof part, "%.500ssnapshot/%016" PRIx64 "/", folder, job->snapshot);
        TRY(read_range(store, part, part, see_lines, &rows));
    }
    rows.of_snapshot = false;
    rows.from = job->first_event;
    (void)snprintf(part, sizeof part, "%.500sevent/", folder);
    TRY(read_range(store, part, part, see_lines, &rows));
    (void)snprintf(part, sizeof part, "%.500svalue/", folder);
    return read_range(store, part, part, see_value, &rows);
}

/* The claim -------------------------------------------------------------------------------------
 */

/* Passes on the job's head, then its rows. *ret_head: owned. */
static muster_status read_claimed(struct etcd_store *store, const char *name,
                                  const struct muster_etcd_pair *pair,
                                  const struct muster_store_reader *reader,
                                  struct muster_etcd_head *ret_head)
{
    const char *text = NULL;
    size_t size = 0;
    struct muster_store_job job = {.name = name, .token = "", .link_token = ""};
    muster_status status = muster_etcd_unseal(pair, &text, &size);
    if (status == MUSTER_OK) {
        status = muster_etcd_head_decode(text, ret_head);
    }
    if (status == MUSTER_INVALID) {
        return reader->damaged(reader->user, &job, muster_last_error());
    }
    TRY(status);
    job = (struct muster_store_job){.name = name,
                                    .token = ret_head->token,
                                    .link_token = ret_head->link_token,
                                    .snapshot = ret_head->snapshot,
                                    .record_count = ret_head->record_count,
                                    .first_event = ret_head->first_event};
    status = reader->job(reader->user, &job);
    return status == MUSTER_OK ? muster_etcd_read_job(store, &job, reader) : status;
}

/* Enters the job into the tables. Takes the head. */
static muster_status enter(struct etcd_store *store, const char *name, uint64_t tenure,
                           const struct claim_attempt *attempt, struct muster_etcd_head head)
{
    struct etcd_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        muster_etcd_head_finish(&head);
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    (void)snprintf(job->name, sizeof job->name, "%s", name);
    job->tenure = tenure;
    job->owner_revision = attempt->owner_revision;
    job->head_revision = attempt->head.revision;
    job->head = head;
    AUTO_LOCK(&store->mutex);
    job->claim = ++store->claims;
    job->by_name.tbl = NULL;
    job->by_claim.tbl = NULL;
    HASH_ADD(by_name, store->by_name, name[0], strlen(job->name), job);
    if (job->by_name.tbl != NULL) {
        HASH_ADD(by_claim, store->by_claim, claim, sizeof job->claim, job);
    }
    if (job->by_claim.tbl == NULL) {
        if (job->by_name.tbl != NULL) {
            HASH_DELETE(by_name, store->by_name, job);
        }
        muster_etcd_head_finish(&job->head);
        free(job);
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    return MUSTER_OK;
}

/* What this server has of an earlier claim goes; a removal that was accepted is carried out. */
static void drop_earlier(struct etcd_store *store, const char *name)
{
    muster_mutex_lock(&store->mutex);
    const struct etcd_job *job = muster_etcd_find_locked(store, name);
    bool removed = job != NULL && job->removed;
    muster_mutex_unlock(&store->mutex);
    if (removed) {
        muster_etcd_flush(store);
    }
    AUTO_LOCK(&store->flush_mutex);
    muster_mutex_lock(&store->mutex);
    struct etcd_job *left = NULL;
    HASH_FIND(by_name, store->by_name, name, strlen(name), left);
    if (left != NULL) {
        muster_etcd_forget_locked(store, left);
    }
    muster_mutex_unlock(&store->mutex);
}

static void set_owner(struct muster_store_claim *claim, const struct muster_etcd_pair *owner)
{
    size_t length = strcspn(owner->value, " ");
    (void)snprintf(claim->owner, sizeof claim->owner, "%.*s", (int)length, owner->value);
}

muster_status muster_etcd_claim(struct muster_store *base, const char *name, bool create,
                                const struct muster_store_reader *reader,
                                struct muster_store_claim *ret_claim)
{
    struct etcd_store *store = (struct etcd_store *)base;
    struct claim_attempt attempt = {0};
    struct muster_etcd_head head = {0};
    struct muster_store_claim claim = {0};
    uint64_t tenure = atomic_load(&store->session.tenure);
    TRY(muster_etcd_session_check(&store->session, tenure));
    drop_earlier(store, name);
    TRY(claim_owner(store, name, create, &attempt));
    muster_status status = MUSTER_OK;
    if (attempt.claimed && attempt.head.value != NULL) {
        status = read_claimed(store, name, &attempt.head, reader, &head);
    }
    if (status != MUSTER_OK) {
        muster_etcd_head_finish(&head);
    } else if (attempt.claimed) {
        status = enter(store, name, tenure, &attempt, head);
        muster_mutex_lock(&store->mutex);
        const struct etcd_job *job = muster_etcd_find_locked(store, name);
        claim.number = job != NULL ? job->claim : 0;
        muster_mutex_unlock(&store->mutex);
        if (status == MUSTER_OK && claim.number == 0) {
            status = muster_etcd_not_claimed(store, name);
        }
    } else if (attempt.elsewhere) {
        set_owner(&claim, &attempt.owner);
    }
    finish_attempt(&attempt);
    if (status == MUSTER_OK) {
        *ret_claim = claim;
    }
    return status;
}
