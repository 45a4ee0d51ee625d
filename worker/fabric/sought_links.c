/* The table of operations of a link whose peer is sought: it keeps what is posted. */
#include "worker/fabric/sought_links.h"

#include "worker/base/cleanup.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ABORTS_MAX = 16 }; /* further ones are dropped: aborting is best effort */

struct muster_sought {
    struct muster_transfer_list sends;
    uint32_t abort_count;
    struct {
        struct muster_operation_id operation;
        char reason[MUSTER_REASON_SIZE];
    } aborts[ABORTS_MAX];
};

/* Operations ----------------------------------------------------------------------------------- */

static void sought_post_send(struct muster_link *link, struct muster_transfer *transfer)
{
    struct muster_sought *kept = link->end;
    muster_transfer_list_append(&kept->sends, transfer);
}

/* It is in link->receives. */
static void sought_post_receive(struct muster_link *link, struct muster_transfer *transfer)
{
    (void)link;
    (void)transfer;
}

static void sought_withdraw(struct muster_link *link, const struct muster_operation_id *operation,
                            struct muster_transfer_list *ret_sends)
{
    struct muster_sought *kept = link->end;
    muster_transfer_list_move(&kept->sends, operation, ret_sends);
}

static void sought_abort(struct muster_link *link, const struct muster_operation_id *operation,
                         const char *reason)
{
    struct muster_sought *kept = link->end;
    if (kept->abort_count < ABORTS_MAX) {
        kept->aborts[kept->abort_count].operation = *operation;
        (void)snprintf(kept->aborts[kept->abort_count].reason, MUSTER_REASON_SIZE, "%s", reason);
        kept->abort_count++;
    }
}

/* Nothing is sent or has arrived before the link has a transport. */
static void sought_for_operation(struct muster_link *link,
                                 const struct muster_operation_id *operation)
{
    (void)link;
    (void)operation;
}

static bool sought_refuse(struct muster_link *link, const struct muster_message_key *key,
                          const char *reason)
{
    (void)link;
    (void)key;
    (void)reason;
    return false;
}

static void sought_progress(struct muster_link *link)
{
    (void)link;
}

static bool sought_goodbye_done(const struct muster_link *link)
{
    (void)link;
    return true;
}

static void sought_peer_left(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct muster_sought *kept = link->end;
    muster_transfer_list_splice(&kept->sends, ret_sends);
}

static bool sought_has_arrived(const struct muster_link *link, const struct muster_message_key *key)
{
    (void)link;
    (void)key;
    return false;
}

static void sought_close(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    sought_peer_left(link, ret_sends);
    free(TAKE(link->end));
}

/* Only what is called for a link; the fabric has no transport of this name. */
static const struct muster_transport sought_operations = {
    .name = "not-known",
    .open = muster_link_seek,
    .post_send = sought_post_send,
    .post_receive = sought_post_receive,
    .withdraw = sought_withdraw,
    .abort = sought_abort,
    .send_signature = sought_for_operation,
    .announce = sought_for_operation,
    .refuse = sought_refuse,
    .progress = sought_progress,
    .send_goodbye = sought_progress,
    .goodbye_done = sought_goodbye_done,
    .peer_left = sought_peer_left,
    .has_arrived = sought_has_arrived,
    .close = sought_close,
};

/* Seeking -------------------------------------------------------------------------------------- */

void muster_link_seek(struct muster_link *link)
{
    struct muster_peer_finder *finder = link->fabric->finder;
    struct muster_sought *kept = finder != NULL ? calloc(1, sizeof *kept) : NULL;
    link->ops = &sought_operations;
    link->transport = NULL;
    if (kept == NULL) {
        muster_link_fail(link, MUSTER_LINK_LOST,
                         finder == NULL ? "its addresses are not known" : "out of memory");
        return;
    }
    link->end = kept;
    link->state = MUSTER_LINK_OPENING;
    finder->wanted(finder);
}

bool muster_link_is_sought(const struct muster_link *link)
{
    return link->state == MUSTER_LINK_OPENING && link->ops == &sought_operations;
}

struct muster_sought *muster_link_stop_seeking(struct muster_link *link)
{
    assert(muster_link_is_sought(link));
    link->state = MUSTER_LINK_IDLE;
    return TAKE(link->end);
}

void muster_link_resume(struct muster_link *link, struct muster_sought *kept)
{
    muster_link_open(link); /* if it is IDLE */
    muster_link_repost(link, &kept->sends);
    for (uint32_t i = 0; i < kept->abort_count && link->end != NULL; i++) {
        link->ops->abort(link, &kept->aborts[i].operation, kept->aborts[i].reason);
    }
    free(kept);
    muster_link_notify(link);
    muster_fabric_wake(link->fabric);
}

void muster_link_take_over(struct muster_link *link, struct muster_link *sought)
{
    struct muster_transfer_list receives = {0};
    struct muster_transfer *receive = NULL;
    if (!muster_link_is_sought(sought)) {
        return;
    }
    struct muster_sought *kept = muster_link_stop_seeking(sought);
    muster_transfer_table_splice(&sought->receives, &receives);
    while ((receive = muster_transfer_list_pop(&receives)) != NULL) {
        muster_transfer_table_insert(&link->receives, receive);
    }
    link->sends += sought->sends;
    sought->sends = 0;
    muster_link_resume(link, kept);
}
