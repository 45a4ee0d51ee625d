/* Lists of process sets: remembered, asked for, answered. All records are under the fabric's lock.
 */
#include "worker/communicator/set_lists.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/communicator/set_difference.h"
#include "worker/communicator/set_numbers.h"

enum {
    /* Of these messages; below those of set_numbers.h, above those that a communicator counts. */
    CONTEXT = MUSTER_SET_NUMBERS - 1,
    NAMED_MAX = 2, /* members that an error text names */
};

/* The exchange that created, or did not create, a set. */
struct exchange_id {
    uint32_t context;
    uint64_t sequence;
};

struct kept_list {
    struct exchange_id id;
    uint32_t *members; /* owned; NULL: the place is free */
    uint32_t count;
};

/* A message that is posted. When it is done, the fabric may still use its record for a moment, so
 * it is freed before the next one is made. */
struct talk {
    struct muster_transfer transfer; /* first: the fabric hands it back */
    struct muster_call call;
    struct muster_set_lists *lists;
    uint32_t *members; /* owned [transfer.size_bytes / 4]; or NULL */
    LIST_ENTRY(talk) entry;
};

/* On the stack of who asks. */
struct question {
    uint32_t peer;
    struct exchange_id id;
    bool finished;
    uint32_t *answer; /* NULL: there was none */
    size_t count;
    LIST_ENTRY(question) entry;
};

struct muster_set_lists {
    struct muster_announcement_listener listener; /* first: it is found by it */
    struct muster_fabric *fabric;
    uint64_t generation;
    uint32_t own, size;
    bool ready;    /* messages may be received */
    uint32_t sent; /* messages, to all members together */
    uint32_t next; /* in kept */
    struct kept_list kept[MUSTER_SET_LISTS_KEPT];
    LIST_HEAD(talks, talk) talks, spent; /* posted; done */
    LIST_HEAD(questions, question) questions;
};

static bool is_same(const struct exchange_id *a, const struct exchange_id *b)
{
    return a->context == b->context && a->sequence == b->sequence;
}

static struct exchange_id id_of(const char *name, uint32_t creation)
{
    struct exchange_id id;
    muster_set_creation_key(name, creation, &id.context, &id.sequence);
    return id;
}

static const struct kept_list *find_list(const struct muster_set_lists *lists,
                                         const struct exchange_id *id)
{
    for (uint32_t i = 0; i < MUSTER_SET_LISTS_KEPT; i++) {
        if (lists->kept[i].members != NULL && is_same(&lists->kept[i].id, id)) {
            return &lists->kept[i];
        }
    }
    return NULL;
}

static uint32_t *copy(const uint32_t *members, size_t count)
{
    uint32_t *copied = calloc(count + 1, sizeof *copied);
    if (copied != NULL && count > 0) {
        memcpy(copied, members, count * sizeof *copied);
    }
    return copied;
}

/* Messages ------------------------------------------------------------------------------------- */

static void free_talks(struct talks *talks)
{
    struct talk *talk = NULL;
    while ((talk = LIST_FIRST(talks)) != NULL) {
        LIST_REMOVE(talk, entry);
        free(talk->members);
        free(talk);
    }
}

static void spend(struct talk *talk)
{
    LIST_REMOVE(talk, entry);
    LIST_INSERT_HEAD(&talk->lists->spent, talk, entry);
}

/* Of which the caller has to set members, call and transfer. NULL: no memory. */
static struct talk *make_talk(struct muster_set_lists *lists)
{
    struct talk *talk = calloc(1, sizeof *talk);
    free_talks(&lists->spent);
    if (talk != NULL) {
        talk->lists = lists;
    }
    return talk;
}

static void finish_question(struct question *question, uint32_t *answer, size_t count)
{
    LIST_REMOVE(question, entry);
    question->answer = answer;
    question->count = count;
    __atomic_store_n(&question->finished, true, __ATOMIC_SEQ_CST);
}

/* The answers of a member come in the order of its questions, if there are several for one set. */
static void take_answer(struct muster_set_lists *lists, struct talk *talk)
{
    const struct exchange_id id = {.context = talk->call.root, .sequence = talk->call.count};
    struct question *question = NULL;
    LIST_FOREACH(question, &lists->questions, entry)
    {
        if (question->peer == talk->transfer.peer && is_same(&question->id, &id)) {
            finish_question(question, TAKE(talk->members),
                            talk->transfer.size_bytes / sizeof(uint32_t));
            return;
        }
    }
}

static void answer(struct muster_set_lists *lists, const struct talk *question);

static void when_done(struct muster_transfer *transfer)
{
    struct talk *talk = (struct talk *)transfer;
    struct muster_set_lists *lists = talk->lists;
    if (transfer->status == MUSTER_OK && transfer->direction == MUSTER_RECEIVE) {
        if (talk->call.type == MUSTER_UINT32) {
            take_answer(lists, talk);
        } else {
            answer(lists, talk);
        }
    }
    spend(talk);
}

static void post(struct talk *talk)
{
    struct muster_set_lists *lists = talk->lists;
    talk->transfer.call = &talk->call;
    talk->transfer.data = talk->members;
    talk->transfer.element_size_bytes = talk->call.type == MUSTER_UINT32 ? sizeof(uint32_t) : 1;
    talk->transfer.done = when_done;
    LIST_INSERT_HEAD(&lists->talks, talk, entry);
    if (muster_fabric_post_locked(lists->fabric, &talk->transfer) != MUSTER_OK) {
        spend(talk);
    }
}

/* Takes the list, which may be NULL. */
static void send_to(struct muster_set_lists *lists, uint32_t peer, const struct exchange_id *id,
                    uint8_t type, uint32_t *members, size_t count)
{
    struct talk *talk = make_talk(lists);
    if (talk == NULL) {
        free(members);
        return;
    }
    talk->members = members;
    talk->call = (struct muster_call){.type = type, .root = id->context, .count = id->sequence};
    talk->transfer = (struct muster_transfer){.key = {.generation = lists->generation,
                                                      .sequence = MUSTER_ANNOUNCED_SEQUENCE,
                                                      .context = lists->listener.context,
                                                      .ordinal = lists->sent++},
                                              .direction = MUSTER_SEND,
                                              .peer = peer,
                                              .size_bytes = count * sizeof *members};
    post(talk);
}

static void answer(struct muster_set_lists *lists, const struct talk *question)
{
    const struct exchange_id id = {.context = question->call.root,
                                   .sequence = question->call.count};
    const struct kept_list *list = find_list(lists, &id);
    uint32_t *members = list != NULL ? copy(list->members, list->count) : NULL;
    send_to(lists, question->transfer.peer, &id, MUSTER_UINT32, members,
            members != NULL ? list->count : 0);
}

/* The listener --------------------------------------------------------------------------------- */

static bool is_received(const struct muster_set_lists *lists,
                        const struct muster_announcement *message)
{
    const struct talk *talk = NULL;
    LIST_FOREACH(talk, &lists->talks, entry)
    {
        if (talk->transfer.direction == MUSTER_RECEIVE && talk->transfer.peer == message->peer &&
            talk->transfer.key.ordinal == message->key.ordinal) {
            return true;
        }
    }
    return false;
}

/* A question has no data, an answer at most all ranks; others are not received. */
static bool is_well_formed(const struct muster_set_lists *lists,
                           const struct muster_announcement *message)
{
    uint64_t most_bytes = message->call.type == MUSTER_UINT32 ? lists->size * sizeof(uint32_t) : 0;
    return (message->call.type == MUSTER_UINT32 || message->call.type == MUSTER_UINT8) &&
           message->size_bytes <= most_bytes && message->size_bytes % sizeof(uint32_t) == 0;
}

static void announced(struct muster_announcement_listener *listener,
                      const struct muster_announcement *message)
{
    struct muster_set_lists *lists = (struct muster_set_lists *)listener;
    if (!lists->ready || is_received(lists, message) || !is_well_formed(lists, message)) {
        return;
    }
    struct talk *talk = make_talk(lists);
    if (talk == NULL) {
        return;
    }
    talk->members = malloc(message->size_bytes + 1);
    talk->call = message->call;
    talk->transfer = (struct muster_transfer){.key = message->key,
                                              .direction = MUSTER_RECEIVE,
                                              .peer = message->peer,
                                              .size_bytes = message->size_bytes};
    if (talk->members == NULL) {
        free(talk);
        return;
    }
    post(talk);
}

static void link_ended(struct muster_announcement_listener *listener, uint32_t peer, bool left,
                       const char *reason)
{
    struct muster_set_lists *lists = (struct muster_set_lists *)listener;
    struct question *question = LIST_FIRST(&lists->questions);
    (void)left;
    (void)reason;
    while (question != NULL) {
        struct question *next = LIST_NEXT(question, entry);
        if (question->peer == peer) {
            finish_question(question, NULL, 0);
        }
        question = next;
    }
}

/* Asking --------------------------------------------------------------------------------------- */

/* Returns the peer's list, the caller's, or NULL. */
static uint32_t *ask(struct muster_set_lists *lists, uint32_t peer, const struct exchange_id *id,
                     size_t *ret_count)
{
    struct question question = {.peer = peer, .id = *id};
    muster_fabric_begin_posting(lists->fabric);
    LIST_INSERT_HEAD(&lists->questions, &question, entry);
    send_to(lists, peer, id, MUSTER_UINT8, NULL, 0);
    muster_fabric_end_posting(lists->fabric);
    muster_status status = muster_fabric_wait(lists->fabric, lists->generation, &question.finished,
                                              muster_clock_after_ms(MUSTER_SET_LISTS_ANSWER_MS));
    (void)status; /* without an answer the text stays as it is */
    muster_fabric_begin_posting(lists->fabric);
    if (!question.finished) {
        finish_question(&question, NULL, 0);
    }
    muster_fabric_end_posting(lists->fabric);
    *ret_count = question.count;
    return question.answer;
}

/* The members that the text of the error names: "rank 1 (host b) calls differently: ...", or "rank
 * 2 says: rank 1 (host b) calls differently: ...". */
static uint32_t find_named(const char *text, uint32_t ret_ranks[NAMED_MAX])
{
    static const char *const before[NAMED_MAX] = {"rank ", " says: rank "};
    uint32_t named = 0;
    const char *rest = strstr(text, "calls differently") != NULL ? text : "";
    while (named < NAMED_MAX && strncmp(rest, before[named], strlen(before[named])) == 0) {
        char *end = NULL;
        ret_ranks[named] = (uint32_t)strtoul(rest + strlen(before[named]), &end, 10);
        rest = end;
        named++;
    }
    return named;
}

/* True: the peer has another list, and the text says in what it differs. */
static bool compare_with(struct muster_set_lists *lists, uint32_t peer,
                         const struct exchange_id *id, const struct muster_named_list *own,
                         char *ret_text, size_t size)
{
    size_t count = 0;
    AUTO_FREE uint32_t *members = ask(lists, peer, id, &count);
    const struct muster_named_list other = {.owner = peer, .members = members, .count = count};
    return members != NULL && count > 0 && muster_set_difference(own, &other, ret_text, size);
}

static uint32_t *copy_own(struct muster_set_lists *lists, const struct exchange_id *id,
                          size_t *ret_count)
{
    uint32_t *members = NULL;
    muster_fabric_begin_posting(lists->fabric);
    const struct kept_list *list = find_list(lists, id);
    if (list != NULL) {
        members = copy(list->members, list->count);
        *ret_count = list->count;
    }
    muster_fabric_end_posting(lists->fabric);
    return members;
}

void muster_set_lists_explain(struct muster_set_lists *lists, const char *name, uint32_t creation)
{
    const struct exchange_id id = id_of(name, creation);
    uint32_t ranks[NAMED_MAX] = {0};
    char text[MUSTER_ERROR_MAX];
    struct muster_named_list own = {.owner = lists->own};
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    uint32_t named = find_named(text, ranks);
    AUTO_FREE uint32_t *members = copy_own(lists, &id, &own.count);
    own.members = members;
    for (uint32_t i = 0; i < named && members != NULL; i++) {
        if (ranks[i] != lists->own && ranks[i] < lists->size &&
            compare_with(lists, ranks[i], &id, &own, text, sizeof text)) {
            break;
        }
    }
    (void)muster_error_set(MUSTER_INVALID, "%s", text);
}

/* Beginning and end ---------------------------------------------------------------------------- */

void muster_set_lists_remember(struct muster_set_lists *lists, const char *name, uint32_t creation,
                               const uint32_t *members, uint32_t count)
{
    struct kept_list list = {
        .id = id_of(name, creation), .members = copy(members, count), .count = count};
    muster_fabric_begin_posting(lists->fabric);
    struct kept_list *place = &lists->kept[lists->next++ % MUSTER_SET_LISTS_KEPT];
    free(place->members);
    *place = list;
    muster_fabric_end_posting(lists->fabric);
}

muster_status muster_set_lists_create(struct muster_fabric *fabric, uint64_t generation,
                                      uint32_t own, uint32_t size,
                                      struct muster_set_lists **ret_lists)
{
    struct muster_set_lists *lists = calloc(1, sizeof *lists);
    if (lists == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the lists of process sets");
    }
    lists->fabric = fabric;
    lists->generation = generation;
    lists->own = own;
    lists->size = size;
    LIST_INIT(&lists->talks);
    LIST_INIT(&lists->spent);
    LIST_INIT(&lists->questions);
    lists->listener =
        (struct muster_announcement_listener){.generation = generation,
                                              .context = CONTEXT | MUSTER_ANNOUNCED_CONTEXT,
                                              .announced = announced,
                                              .link_ended = link_ended};
    /* Nobody asks before this member has begun to create a set, so none is missed by `ready`. */
    muster_fabric_listen(fabric, &lists->listener);
    muster_fabric_begin_posting(fabric);
    lists->ready = true;
    muster_fabric_end_posting(fabric);
    *ret_lists = lists;
    return MUSTER_OK;
}

void muster_set_lists_destroy(struct muster_set_lists *lists)
{
    if (lists == NULL) {
        return;
    }
    muster_fabric_unlisten(lists->fabric, &lists->listener);
    muster_fabric_withdraw(lists->fabric, lists->generation, lists->listener.context,
                           MUSTER_ANNOUNCED_SEQUENCE);
    free_talks(&lists->talks);
    free_talks(&lists->spent);
    for (uint32_t i = 0; i < MUSTER_SET_LISTS_KEPT; i++) {
        free(lists->kept[i].members);
    }
    free(lists);
}
