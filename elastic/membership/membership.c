/* Create, check, apply: what each event does to a membership; and which event is due with time. */
#include "elastic/membership/membership.h"

#include "elastic/membership/membership_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void muster_job_settings_init(struct muster_job_settings *settings)
{
    *settings = (struct muster_job_settings){
        .min_size = 1,
        .max_size = 1024,
        .target_size = 0,
        .settle_ms = 200,
        .lease_ms = 5000,
        .arrive_ms = 30000,
        .suspect_ms = 2000,
    };
}

void muster_actions_finish(struct muster_actions *actions)
{
    free(actions->items);
    *actions = (struct muster_actions){0};
}

muster_status muster_membership_create(struct muster_membership **ret_membership)
{
    struct muster_membership *membership = calloc(1, sizeof *membership);
    if (membership == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a job");
    }
    muster_job_settings_init(&membership->settings);
    membership->phase = MUSTER_JOB_FORMING;
    membership->liveness_check_ms = MUSTER_LIVENESS_NEVER;
    membership->maybe_doubted = true;
    muster_records_format(membership->why, "nobody has joined yet");
    *ret_membership = membership;
    return MUSTER_OK;
}

void muster_membership_destroy(struct muster_membership *membership)
{
    if (membership != NULL) {
        muster_records_finish(membership);
        free(membership);
    }
}

/* Steps that several events share ------------------------------------------------------------- */

/* Adds an action, unless there is one of its kind: an event makes at most one of each kind. */
static void add_action(struct muster_actions *actions, enum muster_action_kind kind,
                       const char *member)
{
    for (size_t i = 0; i < actions->count; i++) {
        if (actions->items[i].kind == kind) {
            return;
        }
    }
    struct muster_action *action = &actions->items[actions->count++];
    action->kind = kind;
    memcpy(action->member, member, strlen(member) + 1);
}

static void check_liveness_by(struct muster_membership *m, int64_t deadline_ms)
{
    m->liveness_check_ms = deadline_ms < m->liveness_check_ms ? deadline_ms : m->liveness_check_ms;
}

static void check_liveness_of(struct muster_membership *m, const struct muster_member *member)
{
    check_liveness_by(m, muster_liveness_deadline_ms(&member->signs, &m->settings));
}

/* Ends the running generation: its members are awaited until each has joined again or is dead.
 * blamed: the member whose departure may still replace why as the reason; "": any member; NULL: no
 * member. */
static void revoke(struct muster_membership *m, const char *why, const char *blamed,
                   struct muster_actions *actions)
{
    m->phase = MUSTER_JOB_FORMING;
    m->newcomers_settled = false;
    m->why_open = blamed != NULL;
    memset(m->blamed, 0, sizeof m->blamed);
    if (blamed != NULL) {
        memcpy(m->blamed, blamed, strlen(blamed));
    }
    muster_records_format(m->why, "%s", why);
    muster_records_end_generation(m, why);
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->listed[i]->phase == MUSTER_MEMBER_ACTIVE) {
            muster_records_set_phase(m, m->listed[i], MUSTER_MEMBER_AWAITED);
            m->listed[i]->signs.awaited_ms = m->now_ms;
        }
    }
    check_liveness_by(m, muster_liveness_after(m->now_ms, m->settings.arrive_ms));
    add_action(actions, MUSTER_ACTION_NOTIFY_WATCHES, "");
}

static void end_job(struct muster_membership *m, const char *why, struct muster_actions *actions)
{
    muster_records_format(m->why, "%s", why);
    if (m->phase == MUSTER_JOB_RUNNING) {
        muster_records_end_generation(m, m->why);
    }
    m->phase = MUSTER_JOB_ENDED;
    m->finishing = false;
    m->newcomers_settled = false;
    char reason[MUSTER_WHY_SIZE];
    muster_records_format(reason, "the job has ended: %s", m->why);
    while (m->count > 0) {
        muster_records_mark_gone(m, m->listed[m->count - 1], reason);
    }
    add_action(actions, MUSTER_ACTION_ENDED, "");
}

/* The member is gone. That revokes a running generation that it was in, unless the generation is
 * finishing, and ends the job after its last member. reason 0: it died. */
static void remove_member(struct muster_membership *m, struct muster_member *member,
                          enum muster_leave_reason reason, const char *cause,
                          struct muster_actions *actions)
{
    bool revokes = member->phase == MUSTER_MEMBER_ACTIVE && !m->finishing;
    add_action(actions, MUSTER_ACTION_GONE, member->id);
    muster_records_depart(m, member, reason, cause);
    if (revokes) {
        revoke(m, member->why, NULL, actions);
    }
    if (m->finishing && m->active == 0) {
        end_job(m, "finished", actions);
    } else if (m->count == 0) {
        char why[MUSTER_WHY_SIZE];
        muster_records_format(why, "nobody is left: %s", member->why);
        end_job(m, why, actions);
        m->deserted = true;
    }
}

/* The member has done its work. From the first one on the generation only runs out. */
static void finish_member(struct muster_membership *m, struct muster_member *member,
                          const char *cause, struct muster_actions *actions)
{
    char who[MUSTER_WHY_SIZE];
    if (!m->finishing) {
        muster_records_format(m->why, "%s was the first to finish",
                              muster_records_describe(member, who));
    }
    m->finishing = true;
    remove_member(m, member, MUSTER_LEAVE_FINISHED, cause, actions);
}

/* Forms a generation or settles newcomers, where the event has made that possible. A death forms
 * nothing (may_form is false): other members may be due to be declared dead at the same moment, and
 * must not become part of the generation. */
static void advance(struct muster_membership *m, bool may_form, struct muster_actions *actions)
{
    if (may_form && muster_forming_form_ms(m) <= m->now_ms) {
        muster_forming_form(m);
        add_action(actions, MUSTER_ACTION_ANSWER_JOINS, "");
    }
    if (muster_forming_settle_ms(m) <= m->now_ms) {
        m->newcomers_settled = true;
    }
    if (m->arrived == 0 || m->active >= m->settings.max_size) {
        m->newcomers_settled = false;
    }
}

/* Join ---------------------------------------------------------------------------------------- */

/* The first Join of a job, or the first after its end: its settings are those of the job. */
static void begin_job(struct muster_membership *m, const struct muster_job_settings *settings)
{
    m->settings = *settings;
    m->begun = true;
    m->phase = MUSTER_JOB_FORMING;
    m->shrinking = false;
    m->deserted = false;
    m->why_open = false;
    muster_records_format(m->why, "the first members are joining");
}

static muster_status join_newcomer(struct muster_membership *m, const struct muster_event *event)
{
    struct muster_member *member = NULL;
    TRY(muster_records_add(m, &event->info, &member));
    if (!m->begun || m->phase == MUSTER_JOB_ENDED) {
        begin_job(m, &event->settings);
    }
    m->last_newcomer_ms = m->now_ms;
    muster_liveness_init(&member->signs, m->now_ms);
    check_liveness_of(m, member);
    return MUSTER_OK;
}

/* An ACTIVE member has joined again, which ends the generation. The reason is the most specific one
 * that is known. */
static void revoke_for_join(struct muster_membership *m, const struct muster_member *member,
                            struct muster_actions *actions)
{
    char who[MUSTER_WHY_SIZE];
    char why[MUSTER_WHY_SIZE];
    if (m->newcomers_settled) {
        muster_records_format(why, "%" PRIu32 " newcomer%s", m->arrived,
                              m->arrived == 1 ? "" : "s");
        revoke(m, why, NULL, actions);
    } else if (m->shrinking) {
        muster_records_format(why, "resize to %" PRIu32, m->settings.target_size);
        revoke(m, why, NULL, actions);
    } else {
        muster_records_format(why, "%s joined again", muster_records_describe(member, who));
        revoke(m, why, "", actions);
    }
}

/* A member that has not done its work cannot go on, because others have finished. It is told who
 * was the first, and does not count as finished. */
static void end_unfinished(struct muster_membership *m, struct muster_member *member,
                           struct muster_actions *actions)
{
    char cause[MUSTER_WHY_SIZE];
    muster_records_format(cause, "ended, not finished: %s", m->why);
    remove_member(m, member, MUSTER_LEAVE_PLANNED, cause, actions);
}

/* A Join of a listed member: a retry, its arrival after a revocation, or the start of one. */
static muster_status join_again(struct muster_membership *m, struct muster_member *member,
                                const struct muster_member_info *info,
                                struct muster_actions *actions)
{
    muster_liveness_heartbeat(&member->signs, m->now_ms);
    if (member->phase == MUSTER_MEMBER_ACTIVE && m->finishing) {
        if (info->done) {
            finish_member(m, member, "", actions);
        } else {
            end_unfinished(m, member, actions);
        }
        return MUSTER_OK;
    }
    /* The Join that the generation formed with, once more: its response was lost, or this copy of
     * it was late. A later Join means that a late copy of an earlier one was counted. */
    bool repeated = info->generation <= member->info->generation;
    if (member->phase == MUSTER_MEMBER_ACTIVE && repeated &&
        info->generation < m->generation.number) {
        add_action(actions, MUSTER_ACTION_ANSWER_JOINS, "");
        return MUSTER_OK;
    }
    TRY(muster_records_set_info(m, member, info)); /* first: what can fail changes nothing */
    if (member->phase == MUSTER_MEMBER_ACTIVE) {
        revoke_for_join(m, member, actions);
    }
    member->signs.awaited_ms = MUSTER_LIVENESS_NEVER;
    muster_records_set_phase(m, member, MUSTER_MEMBER_ARRIVED);
    return MUSTER_OK;
}

static muster_status apply_join(struct muster_membership *m, const struct muster_event *event,
                                struct muster_actions *actions)
{
    struct muster_member *member = muster_records_find(m, event->info.id);
    if (member == NULL) {
        TRY(join_newcomer(m, event));
    } else {
        TRY(join_again(m, member, &event->info, actions));
    }
    if (event->info.generation > m->highest) {
        m->highest = event->info.generation;
    }
    return MUSTER_OK;
}

/* The other events ---------------------------------------------------------------------------- */

static void apply_leave(struct muster_membership *m, const struct muster_event *event,
                        struct muster_actions *actions)
{
    struct muster_member *member = muster_records_find(m, event->member);
    bool finished = event->leave_reason == MUSTER_LEAVE_FINISHED &&
                    event->generation == m->generation.number &&
                    member->generation == event->generation;
    if (finished && member->phase == MUSTER_MEMBER_ACTIVE) {
        finish_member(m, member, event->why, actions);
        return;
    }
    /* The member finished before it learned of the revocation, so all had agreed that the work is
     * done. */
    bool work_is_done = finished && member->phase == MUSTER_MEMBER_AWAITED;
    remove_member(m, member, event->leave_reason, event->why, actions);
    if (work_is_done && m->phase != MUSTER_JOB_ENDED) {
        end_job(m, "finished", actions);
    }
}

static void apply_report(struct muster_membership *m, const struct muster_event *event,
                         struct muster_actions *actions)
{
    struct muster_member *reporter = muster_records_find(m, event->member);
    struct muster_member *suspect = muster_records_find(m, event->suspect);
    muster_liveness_heartbeat(&reporter->signs, m->now_ms);
    if (suspect->phase == MUSTER_MEMBER_ARRIVED) {
        return; /* it has joined again since: a sign of life */
    }
    if (suspect->signs.reported_ms == MUSTER_LIVENESS_NEVER) {
        suspect->signs.reported_ms = m->now_ms;
        suspect->signs.reporter = reporter->rank;
        check_liveness_of(m, suspect);
    }
    if (m->phase == MUSTER_JOB_RUNNING) {
        char who[MUSTER_WHY_SIZE];
        char why[MUSTER_WHY_SIZE];
        muster_records_format(why, "%s reported by rank %" PRIu32 "%s%s",
                              muster_records_describe(suspect, who), reporter->rank,
                              event->why[0] == '\0' ? "" : ": ", event->why);
        revoke(m, why, suspect->id, actions);
    }
}

static void apply_disconnect(struct muster_membership *m, const struct muster_event *event)
{
    struct muster_member *member = muster_records_find(m, event->member);
    if (member->signs.closed_ms == MUSTER_LIVENESS_NEVER) {
        member->signs.closed_ms = m->now_ms;
        m->maybe_doubted = true;
        check_liveness_of(m, member);
    }
}

static void apply_resize(struct muster_membership *m, const struct muster_event *event,
                         struct muster_actions *actions)
{
    m->settings.target_size = event->target_size;
    m->shrinking = true;
    m->resizes++;
    muster_forming_ask_leaves(m);
    add_action(actions, MUSTER_ACTION_NOTIFY_WATCHES, "");
}

static void apply_end(struct muster_membership *m, const struct muster_event *event,
                      struct muster_actions *actions)
{
    end_job(m, event->why[0] == '\0' ? "ended by request" : event->why, actions);
}

static void apply_restart(struct muster_membership *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        muster_liveness_restart(&m->listed[i]->signs, m->now_ms);
    }
    m->last_newcomer_ms = m->now_ms;
}

/* One case a kind of event; what each does in each phase is the table of README.md. */
static muster_status apply_kind(struct muster_membership *m, const struct muster_event *event,
                                struct muster_actions *actions)
{
    switch (event->kind) {
    case MUSTER_EVENT_JOIN:
        return apply_join(m, event, actions);
    case MUSTER_EVENT_LEAVE:
        apply_leave(m, event, actions);
        break;
    case MUSTER_EVENT_REPORT:
        apply_report(m, event, actions);
        break;
    case MUSTER_EVENT_DISCONNECT:
        apply_disconnect(m, event);
        break;
    case MUSTER_EVENT_RESIZE:
        apply_resize(m, event, actions);
        break;
    case MUSTER_EVENT_END:
        apply_end(m, event, actions);
        break;
    case MUSTER_EVENT_DEATH:
        remove_member(m, muster_records_find(m, event->member), (enum muster_leave_reason)0,
                      event->why, actions);
        break;
    case MUSTER_EVENT_RESTART:
        apply_restart(m);
        break;
    case MUSTER_EVENT_TICK:
        break;
    }
    return MUSTER_OK;
}

muster_status muster_membership_apply(struct muster_membership *membership,
                                      const struct muster_event *event,
                                      struct muster_actions *ret_actions)
{
    struct muster_membership *m = membership;
    TRY(muster_membership_check(m, event));
    struct muster_actions actions = {.items = calloc(MUSTER_ACTIONS_MAX, sizeof *actions.items)};
    if (actions.items == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the actions of an event");
    }
    bool pending = muster_membership_pending(m);
    m->now_ms = event->now_ms > m->now_ms ? event->now_ms : m->now_ms;
    muster_status status = apply_kind(m, event, &actions);
    if (status != MUSTER_OK) {
        muster_actions_finish(&actions);
        return status;
    }
    m->epoch = event->epoch > m->epoch ? event->epoch : m->epoch;
    advance(m, event->kind != MUSTER_EVENT_DEATH && !event->forms_nothing, &actions);
    if (pending != muster_membership_pending(m)) {
        add_action(&actions, MUSTER_ACTION_NOTIFY_WATCHES, "");
    }
    *ret_actions = actions;
    return MUSTER_OK;
}

/* Time ---------------------------------------------------------------------------------------- */

void muster_membership_heartbeat(struct muster_membership *membership, const char *member,
                                 uint64_t progress, int64_t now_ms)
{
    struct muster_member *found = muster_records_find(membership, member);
    if (found != NULL && found->phase != MUSTER_MEMBER_GONE) {
        muster_liveness_heartbeat(&found->signs, now_ms);
        found->signs.progress = progress;
    }
}

void muster_membership_begin_hold(struct muster_membership *membership, const char *member)
{
    struct muster_member *found = muster_records_find(membership, member);
    if (found != NULL && found->phase != MUSTER_MEMBER_GONE) {
        muster_liveness_begin_hold(&found->signs);
    }
}

void muster_membership_end_hold(struct muster_membership *membership, const char *member,
                                int64_t now_ms)
{
    struct muster_member *found = muster_records_find(membership, member);
    if (found != NULL && found->phase != MUSTER_MEMBER_GONE) {
        muster_liveness_end_hold(&found->signs, now_ms);
        check_liveness_of(membership, found);
    }
}

void muster_membership_expect(struct muster_membership *membership, const char *member)
{
    struct muster_member *found = muster_records_find(membership, member);
    if (found != NULL && found->phase != MUSTER_MEMBER_GONE) {
        muster_liveness_expect(&found->signs);
        membership->maybe_doubted = true;
    }
}

/* Doubts -------------------------------------------------------------------------------------- */

void muster_membership_doubt(struct muster_membership *membership, const char *member)
{
    struct muster_member *found = muster_records_find(membership, member);
    if (found != NULL && found->phase != MUSTER_MEMBER_GONE) {
        muster_liveness_doubt(&found->signs);
        membership->maybe_doubted = true;
    }
}

void muster_membership_refused(struct muster_membership *membership, const char *suspect,
                               const char *reporter, int64_t now_ms)
{
    struct muster_member *found = muster_records_find(membership, suspect);
    const struct muster_member *by = muster_records_find(membership, reporter);
    if (found != NULL && found->phase != MUSTER_MEMBER_GONE && by != NULL && by != found) {
        muster_liveness_refused(&found->signs, by->generation == 0 ? UINT32_MAX : by->rank);
        check_liveness_by(membership, now_ms);
    }
}

bool muster_membership_forms_nothing(struct muster_membership *membership)
{
    struct muster_membership *m = membership;
    bool any = false;
    bool arrived = false;
    for (uint32_t i = 0; m->maybe_doubted && i < m->count && !arrived; i++) {
        bool doubted = muster_liveness_doubted(&m->listed[i]->signs);
        any = any || doubted;
        arrived = doubted && m->listed[i]->phase == MUSTER_MEMBER_ARRIVED;
    }
    m->maybe_doubted = any;
    return arrived;
}

static int64_t earliest(int64_t a_ms, int64_t b_ms)
{
    return a_ms < b_ms ? a_ms : b_ms;
}

int64_t muster_membership_next_ms(const struct muster_membership *membership)
{
    int64_t form_ms =
        membership->blocked ? MUSTER_LIVENESS_NEVER : muster_forming_form_ms(membership);
    return earliest(membership->liveness_check_ms,
                    earliest(form_ms, muster_forming_settle_ms(membership)));
}

/* True if a member is dead: *event is then its DEATH. Otherwise sets when the next check is worth
 * it. */
static bool find_dead(struct muster_membership *m, int64_t now_ms, struct muster_event *event)
{
    int64_t next_check_ms = MUSTER_LIVENESS_NEVER;
    for (uint32_t i = 0; i < m->count; i++) {
        const struct muster_member *member = m->listed[i];
        if (muster_liveness_verdict(&member->signs, &m->settings, now_ms, event->why)) {
            event->kind = MUSTER_EVENT_DEATH;
            memcpy(event->member, member->id, sizeof event->member);
            return true;
        }
        next_check_ms =
            earliest(next_check_ms, muster_liveness_deadline_ms(&member->signs, &m->settings));
    }
    m->liveness_check_ms = next_check_ms;
    return false;
}

bool muster_membership_due(struct muster_membership *membership, int64_t now_ms,
                           struct muster_event *ret_event)
{
    struct muster_membership *m = membership;
    now_ms = now_ms > m->now_ms ? now_ms : m->now_ms;
    if (now_ms >= m->liveness_check_ms) {
        struct muster_event death = {.now_ms = now_ms};
        if (find_dead(m, now_ms, &death)) {
            *ret_event = death;
            return true;
        }
    }
    bool forms = muster_forming_form_ms(m) <= now_ms;
    m->blocked = forms && muster_membership_forms_nothing(m);
    if ((forms && !m->blocked) || muster_forming_settle_ms(m) <= now_ms) {
        *ret_event = (struct muster_event){.kind = MUSTER_EVENT_TICK, .now_ms = now_ms};
        return true;
    }
    return false;
}
