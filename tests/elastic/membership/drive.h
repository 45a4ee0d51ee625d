/*
 * Drives a membership as musterd does: check, apply, then whatever is due. Keeps the applied events
 * so that they can be replayed. Header only: each test program here includes it.
 */
#ifndef MUSTER_TESTS_ELASTIC_MEMBERSHIP_DRIVE_H
#define MUSTER_TESTS_ELASTIC_MEMBERSHIP_DRIVE_H

#include "elastic/membership/membership.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct drive {
    struct muster_membership *membership;
    struct muster_job_settings settings; /* of every Join */
    int64_t now_ms;
    /* Since drive_clear_actions(). */
    bool answered, notified, ended;
    char gone[16][MUSTER_UUID_SIZE];
    size_t gone_count;
    /* Every event that was applied. */
    struct muster_event *log;
    size_t log_count, log_capacity;
};

static inline void drive_init(struct drive *d, uint32_t min_size, uint32_t max_size,
                              uint32_t target_size)
{
    *d = (struct drive){.now_ms = 1000};
    muster_job_settings_init(&d->settings);
    d->settings.min_size = min_size;
    d->settings.max_size = max_size;
    d->settings.target_size = target_size;
    assert_int_equal(muster_membership_create(&d->membership), MUSTER_OK);
}

static inline void drive_finish(struct drive *d)
{
    muster_membership_destroy(d->membership);
    free(d->log);
}

static inline void drive_clear_actions(struct drive *d)
{
    d->answered = d->notified = d->ended = false;
    d->gone_count = 0;
}

static inline void drive_log(struct drive *d, const struct muster_event *event)
{
    if (d->log_count == d->log_capacity) {
        d->log_capacity = d->log_capacity == 0 ? 64 : 2 * d->log_capacity;
        d->log = reallocarray(d->log, d->log_capacity, sizeof *d->log);
        assert_non_null(d->log);
    }
    d->log[d->log_count++] = *event;
}

static inline void drive_add_actions(struct drive *d, const struct muster_actions *actions)
{
    for (size_t i = 0; i < actions->count; i++) {
        const struct muster_action *action = &actions->items[i];
        d->answered = d->answered || action->kind == MUSTER_ACTION_ANSWER_JOINS;
        d->notified = d->notified || action->kind == MUSTER_ACTION_NOTIFY_WATCHES;
        d->ended = d->ended || action->kind == MUSTER_ACTION_ENDED;
        if (action->kind == MUSTER_ACTION_GONE && d->gone_count < 16) {
            memcpy(d->gone[d->gone_count++], action->member, MUSTER_UUID_SIZE);
        }
    }
}

/* Applies one event, but not the events that are due after it. */
static inline muster_status drive_once(struct drive *d, const struct muster_event *event)
{
    struct muster_event stored = *event;
    stored.forms_nothing = muster_membership_forms_nothing(d->membership);
    muster_status checked = muster_membership_check(d->membership, &stored);
    struct muster_actions actions = {0};
    muster_status applied = muster_membership_apply(d->membership, &stored, &actions);
    assert_int_equal(checked, applied);
    if (applied == MUSTER_OK) {
        drive_log(d, &stored);
        drive_add_actions(d, &actions);
        muster_actions_finish(&actions);
    }
    return applied;
}

/* Applies all due events, and asserts that they come to an end. */
static inline void drive_due(struct drive *d)
{
    struct muster_event event;
    size_t limit = 2 * (size_t)muster_membership_count(d->membership) + 4;
    while (muster_membership_due(d->membership, d->now_ms, &event)) {
        assert_true(limit-- > 0);
        assert_int_equal(drive_once(d, &event), MUSTER_OK);
    }
    assert_true(muster_membership_next_ms(d->membership) > d->now_ms);
}

static inline muster_status drive_event(struct drive *d, const struct muster_event *event)
{
    muster_status status = drive_once(d, event);
    drive_due(d);
    return status;
}

static inline void drive_until(struct drive *d, int64_t now_ms)
{
    d->now_ms = now_ms;
    drive_due(d);
}

static inline void drive_wait(struct drive *d, int64_t delay_ms)
{
    drive_until(d, d->now_ms + delay_ms);
}

static inline struct muster_event drive_make(const struct drive *d, enum muster_event_kind kind,
                                             const char *member)
{
    struct muster_event event = {.kind = kind, .now_ms = d->now_ms};
    (void)snprintf(event.member, sizeof event.member, "%s", member);
    return event;
}

struct join {
    const char *id, *host;
    const char *rack; /* or NULL */
    uint64_t generation, version;
    uint32_t order;
    bool done; /* its work is */
};

static inline muster_status drive_join(struct drive *d, struct join join)
{
    struct muster_event event = drive_make(d, MUSTER_EVENT_JOIN, join.id);
    event.settings = d->settings;
    event.info = (struct muster_member_info){
        .address_count = 1,
        .addresses = {"tcp://127.0.0.1:1"},
        .state_version = join.version,
        .generation = join.generation,
        .order = join.order,
        .done = join.done,
        .pid = 4711,
    };
    (void)snprintf(event.info.id, sizeof event.info.id, "%s", join.id);
    (void)snprintf(event.info.host, sizeof event.info.host, "%s", join.host);
    (void)snprintf(event.info.rack, sizeof event.info.rack, "%s",
                   join.rack != NULL ? join.rack : "");
    return drive_event(d, &event);
}

/* Joins one after the other at the same time: "a0 a1 b0" are three members, each on the host that
 * its first letter names. */
static inline void drive_join_all(struct drive *d, const char *ids, uint64_t generation,
                                  uint64_t version)
{
    char copy[256];
    char *rest = copy;
    (void)snprintf(copy, sizeof copy, "%s", ids);
    for (char *id = strtok_r(copy, " ", &rest); id != NULL; id = strtok_r(NULL, " ", &rest)) {
        char host[2] = {id[0], '\0'};
        struct join join = {.id = id, .host = host, .generation = generation, .version = version};
        assert_int_equal(drive_join(d, join), MUSTER_OK);
    }
}

static inline muster_status drive_leave(struct drive *d, const char *id, uint64_t generation,
                                        enum muster_leave_reason reason, const char *why)
{
    struct muster_event event = drive_make(d, MUSTER_EVENT_LEAVE, id);
    event.generation = generation;
    event.leave_reason = reason;
    (void)snprintf(event.why, sizeof event.why, "%s", why);
    return drive_event(d, &event);
}

static inline muster_status drive_report(struct drive *d, const char *id, const char *suspect,
                                         uint64_t generation, const char *why)
{
    struct muster_event event = drive_make(d, MUSTER_EVENT_REPORT, id);
    event.generation = generation;
    (void)snprintf(event.suspect, sizeof event.suspect, "%s", suspect);
    (void)snprintf(event.why, sizeof event.why, "%s", why);
    return drive_event(d, &event);
}

static inline muster_status drive_disconnect(struct drive *d, const char *id)
{
    struct muster_event event = drive_make(d, MUSTER_EVENT_DISCONNECT, id);
    return drive_event(d, &event);
}

static inline muster_status drive_resize(struct drive *d, uint32_t target_size)
{
    struct muster_event event = drive_make(d, MUSTER_EVENT_RESIZE, "");
    event.target_size = target_size;
    return drive_event(d, &event);
}

static inline muster_status drive_end(struct drive *d, const char *why)
{
    struct muster_event event = drive_make(d, MUSTER_EVENT_END, "");
    (void)snprintf(event.why, sizeof event.why, "%s", why);
    return drive_event(d, &event);
}

static inline muster_status drive_restart(struct drive *d)
{
    struct muster_event event = drive_make(d, MUSTER_EVENT_RESTART, "");
    return drive_event(d, &event);
}

static inline void drive_heartbeat(struct drive *d, const char *id)
{
    muster_membership_heartbeat(d->membership, id, 1, d->now_ms);
}

/* A request of the member is held from now on, or no longer. */
static inline void drive_hold(struct drive *d, const char *id, bool held)
{
    if (held) {
        muster_membership_begin_hold(d->membership, id);
    } else {
        muster_membership_end_hold(d->membership, id, d->now_ms);
    }
}

static inline void drive_heartbeat_all(struct drive *d)
{
    struct muster_member_view view;
    for (uint32_t i = 0; muster_membership_member(d->membership, i, &view); i++) {
        muster_membership_heartbeat(d->membership, view.info->id, 1, d->now_ms);
    }
}

/* The last generation's members by rank, hosts apart: "a0 a1 | b0". */
static inline const char *drive_ranks(const struct drive *d)
{
    static char text[512];
    struct muster_generation_view view = muster_membership_generation(d->membership);
    size_t length = 0;
    uint32_t rank = 0;
    text[0] = '\0';
    for (uint32_t host = 0; host < view.hosts; host++) {
        for (uint32_t slot = 0; slot < view.host_sizes[host]; slot++, rank++) {
            const char *apart = rank == 0 ? "" : slot == 0 ? " | " : " ";
            int written =
                snprintf(text + length, sizeof text - length, "%s%s", apart, view.members[rank]);
            length += (size_t)written;
            assert_true(length < sizeof text);
        }
    }
    assert_int_equal(rank, view.size);
    return text;
}

static inline uint64_t drive_generation(const struct drive *d)
{
    return muster_membership_generation(d->membership).number;
}

static inline enum muster_job_phase drive_phase(const struct drive *d)
{
    return muster_membership_phase(d->membership);
}

static inline struct muster_member_view drive_member(const struct drive *d, const char *id)
{
    struct muster_member_view view;
    assert_true(muster_membership_find(d->membership, id, &view));
    return view;
}

static inline const char *drive_revoked_why(const struct drive *d, uint64_t generation)
{
    static struct muster_generation_record record;
    for (uint32_t i = 0; muster_membership_generation_record(d->membership, i, &record); i++) {
        if (record.number == generation) {
            return record.why;
        }
    }
    return "no such generation";
}

static inline const char *drive_departure_why(const struct drive *d, const char *id)
{
    static struct muster_departure_record record;
    for (uint32_t i = 0; muster_membership_departure_record(d->membership, i, &record); i++) {
        if (strcmp(record.member, id) == 0) {
            return record.why;
        }
    }
    return "no such departure";
}

#endif
