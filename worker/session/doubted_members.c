/* Dials members for the service. */
#include "worker/session/doubted_members.h"

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/session/formed_answer.h"
#include "worker/session/service_policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void report(const struct muster_session *session, struct muster_client *client,
                   const struct muster_wire_peer *suspect)
{
    struct muster_report_request request = {.kind = MUSTER_REPORT_RESET};
    struct muster_retry_policy retry_policy = {
        .attempt_ms = MUSTER_REPORT_ATTEMPT_MS,
        .deadline_ns = muster_clock_after_ms(MUSTER_REPORT_TOTAL_MS),
        .attempts = MUSTER_REPORT_ATTEMPTS,
    };
    enum muster_rpc_code code = MUSTER_RPC_OK;
    json_t *answer = NULL;
    (void)snprintf(request.job, sizeof request.job, "%s", session->settings.job);
    memcpy(request.member, session->member, sizeof request.member);
    memcpy(request.suspect_member, suspect->member, sizeof request.suspect_member);
    (void)snprintf(request.why, sizeof request.why, "it refused a dial");
    if (muster_client_call(client, MUSTER_RPC_REPORT, muster_report_request_encode(&request),
                           &retry_policy, &answer, &code) == MUSTER_OK) {
        json_decref(answer);
    } else {
        muster_log(MUSTER_LOG_INFO,
                   "member %s (host %s) refused a dial, which the service was not "
                   "told: %s",
                   suspect->member, suspect->host, muster_last_error());
    }
}

void muster_session_dial_doubted(const struct muster_session *session, struct muster_client *client,
                                 const struct muster_wire_peer *doubted, uint32_t count)
{
    enum muster_probe_verdict verdicts[MUSTER_PROBED_MAX];
    uint32_t dialled = count < MUSTER_PROBED_MAX ? count : MUSTER_PROBED_MAX;
    struct muster_peer *peers = dialled > 0 ? malloc(dialled * sizeof *peers) : NULL;
    if (peers == NULL) {
        return;
    }
    for (uint32_t i = 0; i < dialled; i++) {
        bool other_host = strcmp(doubted[i].host, session->settings.host) != 0;
        muster_formed_answer_copy_peer(&doubted[i], doubted[i].host, other_host, &peers[i]);
    }
    muster_peers_probe(peers, dialled, MUSTER_DIAL_MS, verdicts);
    for (uint32_t i = 0; i < dialled; i++) {
        if (verdicts[i] == MUSTER_PROBE_GONE) {
            report(session, client, &doubted[i]);
        }
    }
    free(peers);
}
