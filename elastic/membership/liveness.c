/* Verdicts: the table of liveness.h. */
#include "elastic/membership/liveness.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int64_t muster_liveness_after(int64_t time_ms, uint32_t delay_ms)
{
    if (time_ms > MUSTER_LIVENESS_NEVER - (int64_t)delay_ms) {
        return MUSTER_LIVENESS_NEVER;
    }
    return time_ms + (int64_t)delay_ms;
}

void muster_liveness_init(struct muster_signs *signs, int64_t now_ms)
{
    *signs = (struct muster_signs){
        .last_seen_ms = now_ms,
        .closed_ms = MUSTER_LIVENESS_NEVER,
        .reported_ms = MUSTER_LIVENESS_NEVER,
        .awaited_ms = MUSTER_LIVENESS_NEVER,
    };
}

void muster_liveness_heartbeat(struct muster_signs *signs, int64_t now_ms)
{
    if (now_ms > signs->last_seen_ms) {
        signs->last_seen_ms = now_ms;
    }
    signs->closed_ms = MUSTER_LIVENESS_NEVER;
    signs->reported_ms = MUSTER_LIVENESS_NEVER;
    signs->unheard = false;
    signs->away = false;
    signs->refused = false;
}

void muster_liveness_begin_hold(struct muster_signs *signs)
{
    signs->held = true;
    signs->unheard = false;
    signs->away = false;
}

void muster_liveness_expect(struct muster_signs *signs)
{
    signs->held = true;
    signs->unheard = true;
}

void muster_liveness_doubt(struct muster_signs *signs)
{
    signs->away = true;
}

bool muster_liveness_doubted(const struct muster_signs *signs)
{
    return signs->closed_ms != MUSTER_LIVENESS_NEVER || signs->unheard || signs->away;
}

void muster_liveness_refused(struct muster_signs *signs, uint32_t reporter)
{
    if (muster_liveness_doubted(signs) && !signs->refused) {
        signs->refused = true;
        signs->reporter = reporter;
    }
}

/* No sign of life: suspicions stay. */
void muster_liveness_end_hold(struct muster_signs *signs, int64_t now_ms)
{
    if (signs->held && now_ms > signs->last_seen_ms) {
        signs->last_seen_ms = now_ms;
    }
    signs->held = false;
    signs->unheard = false;
}

void muster_liveness_restart(struct muster_signs *signs, int64_t now_ms)
{
    muster_liveness_heartbeat(signs, now_ms);
    if (signs->awaited_ms != MUSTER_LIVENESS_NEVER) {
        signs->awaited_ms = now_ms;
    }
}

uint32_t muster_liveness_shortest_ms(const struct muster_job_settings *settings)
{
    return settings->suspect_ms < settings->lease_ms ? settings->suspect_ms : settings->lease_ms;
}

bool muster_liveness_check_was_late(int64_t due_ms, int64_t now_ms,
                                    const struct muster_job_settings *settings)
{
    return now_ms > muster_liveness_after(due_ms, muster_liveness_shortest_ms(settings) / 2);
}

bool muster_liveness_suspected(const struct muster_signs *signs)
{
    return signs->closed_ms != MUSTER_LIVENESS_NEVER || signs->reported_ms != MUSTER_LIVENESS_NEVER;
}

/* Two independent pieces of evidence: no need to wait for a sign of life. */
static bool is_confirmed(const struct muster_signs *signs)
{
    return signs->closed_ms != MUSTER_LIVENESS_NEVER && signs->reported_ms != MUSTER_LIVENESS_NEVER;
}

static int64_t earlier(int64_t a_ms, int64_t b_ms)
{
    return a_ms < b_ms ? a_ms : b_ms;
}

static int64_t suspicion_ms(const struct muster_signs *signs,
                            const struct muster_job_settings *settings)
{
    if (signs->refused || is_confirmed(signs)) {
        return INT64_MIN;
    }
    return muster_liveness_after(earlier(signs->closed_ms, signs->reported_ms),
                                 settings->suspect_ms);
}

static int64_t lease_end_ms(const struct muster_signs *signs,
                            const struct muster_job_settings *settings)
{
    return signs->held ? MUSTER_LIVENESS_NEVER
                       : muster_liveness_after(signs->last_seen_ms, settings->lease_ms);
}

int64_t muster_liveness_deadline_ms(const struct muster_signs *signs,
                                    const struct muster_job_settings *settings)
{
    int64_t arrive_ms = muster_liveness_after(signs->awaited_ms, settings->arrive_ms);
    return earlier(suspicion_ms(signs, settings),
                   earlier(lease_end_ms(signs, settings), arrive_ms));
}

static void format_refusal(const struct muster_signs *signs, char why[MUSTER_WHY_SIZE])
{
    char who[24] = "a newcomer";
    if (signs->reporter != UINT32_MAX) {
        (void)snprintf(who, sizeof who, "rank %" PRIu32, signs->reporter);
    }
    (void)snprintf(why, MUSTER_WHY_SIZE, "its process is gone: it refused a dial of %s, and %s",
                   who,
                   signs->closed_ms != MUSTER_LIVENESS_NEVER || signs->away
                       ? "its connection closed"
                       : "was not heard of since the server started");
}

static void format_suspicion(const struct muster_signs *signs,
                             const struct muster_job_settings *settings, char why[MUSTER_WHY_SIZE])
{
    if (signs->refused) {
        format_refusal(signs, why);
    } else if (is_confirmed(signs)) {
        (void)snprintf(why, MUSTER_WHY_SIZE, "connection closed and reported by rank %" PRIu32,
                       signs->reporter);
    } else if (signs->closed_ms != MUSTER_LIVENESS_NEVER) {
        (void)snprintf(why, MUSTER_WHY_SIZE,
                       "connection closed and no sign of life for %" PRIu32 " ms",
                       settings->suspect_ms);
    } else {
        (void)snprintf(why, MUSTER_WHY_SIZE,
                       "reported by rank %" PRIu32 " and no sign of life for %" PRIu32 " ms",
                       signs->reporter, settings->suspect_ms);
    }
}

bool muster_liveness_verdict(const struct muster_signs *signs,
                             const struct muster_job_settings *settings, int64_t now_ms,
                             char ret_why[MUSTER_WHY_SIZE])
{
    if (suspicion_ms(signs, settings) <= now_ms) {
        format_suspicion(signs, settings, ret_why);
        return true;
    }
    if (lease_end_ms(signs, settings) <= now_ms) {
        (void)snprintf(ret_why, MUSTER_WHY_SIZE, "lease lost: no sign of life for %" PRIu32 " ms",
                       settings->lease_ms);
        return true;
    }
    if (muster_liveness_after(signs->awaited_ms, settings->arrive_ms) <= now_ms) {
        (void)snprintf(ret_why, MUSTER_WHY_SIZE,
                       "stuck: alive but did not join again within %" PRIu32 " ms",
                       settings->arrive_ms);
        return true;
    }
    return false;
}

/* The texts begin as above. */
static const struct {
    const char *name, *begin;
} verdicts[MUSTER_LIVENESS_VERDICTS] = {
    [MUSTER_LIVENESS_OTHER] = {"other", ""},
    [MUSTER_LIVENESS_LEASE] = {"lease", "lease lost"},
    [MUSTER_LIVENESS_CLOSED] = {"closed", "connection closed and no sign"},
    [MUSTER_LIVENESS_REPORTED] = {"reported", "reported by"},
    [MUSTER_LIVENESS_CONFIRMED] = {"confirmed", "connection closed and reported"},
    [MUSTER_LIVENESS_STUCK] = {"stuck", "stuck"},
    [MUSTER_LIVENESS_REFUSED] = {"refused", "its process is gone"},
};

enum muster_liveness_verdict_kind muster_liveness_verdict_of(const char *why)
{
    int kind = MUSTER_LIVENESS_VERDICTS - 1;
    while (strncmp(why, verdicts[kind].begin, strlen(verdicts[kind].begin)) != 0) {
        kind--; /* every text begins like MUSTER_LIVENESS_OTHER's */
    }
    return (enum muster_liveness_verdict_kind)kind;
}

const char *muster_liveness_verdict_name(enum muster_liveness_verdict_kind kind)
{
    return verdicts[kind].name;
}
