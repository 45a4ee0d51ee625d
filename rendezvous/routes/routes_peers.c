/* Peers: who has which rank, for members of large jobs, whose responses to Join do not say it of
 * all. */
#include "rendezvous/routes/join_responses.h"
#include "rendezvous/routes/routes.h"
#include "worker/base/epoch.h"

#include <inttypes.h>
#include <stdlib.h>

static muster_status check_peers(const struct muster_job *job,
                                 const struct muster_peers_request *request)
{
    struct muster_member_view view;
    uint64_t last = muster_membership_generation(job->membership).number;
    uint32_t size = muster_membership_generation(job->membership).size;
    if (!muster_membership_find(job->membership, request->member, &view)) {
        return muster_membership_check_member(job->membership, request->member);
    }
    if (request->generation != last || last == 0) {
        return muster_error_set(MUSTER_REJOIN,
                                "generation %" PRIu64 " is not the last, which is %" PRIu64,
                                muster_epoch_shown(request->generation), muster_epoch_shown(last));
    }
    for (uint32_t i = 0; i < request->rank_count; i++) {
        if (request->ranks[i] >= size) {
            return muster_error_set(MUSTER_INVALID, "ranks[%u]: rank %u of %u", i,
                                    request->ranks[i], size);
        }
    }
    return MUSTER_OK;
}

static struct muster_rpc_response list_peers(struct muster_transaction *transaction,
                                             const struct muster_peers_request *request)
{
    struct muster_rpc_response response = {.code = MUSTER_RPC_INTERNAL};
    const struct muster_formed *formed = muster_join_responses_shared(transaction);
    FILE *file = formed != NULL ? open_memstream(&response.body, &response.size_bytes) : NULL;
    if (file == NULL) {
        return response;
    }
    bool written =
        fputs("{\"peers\":", file) >= 0 &&
        muster_join_responses_write_peers(formed, request->ranks, request->rank_count, file) &&
        fputc('}', file) != EOF;
    if (fclose(file) != 0 || !written) {
        free(response.body);
        return (struct muster_rpc_response){.code = MUSTER_RPC_INTERNAL};
    }
    response.code = MUSTER_RPC_OK;
    return response;
}

bool muster_route_peers(struct muster_rpc_call *call)
{
    struct muster_peers_request request;
    struct muster_transaction transaction;
    if (muster_rpc_call_failed(call, muster_peers_request_decode(call->json, &request))) {
        return true;
    }
    if (muster_transaction_begin(call, request.job, &transaction)) {
        if (!muster_rpc_call_failed(call, check_peers(transaction.job, &request))) {
            call->response = list_peers(&transaction, &request);
        }
        muster_transaction_end(&transaction);
    }
    muster_peers_request_finish(&request);
    return true;
}
