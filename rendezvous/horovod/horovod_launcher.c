/* What a launcher asks: the plan of a job, put, shown and removed, at the scope "muster". */
#include "rendezvous/horovod/horovod_parts.h"

#include "worker/base/cleanup.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

static const char *state_name(const struct muster_horovod_slot *slot)
{
    switch (slot->state) {
    case MUSTER_HOROVOD_NEW:
        return "new";
    case MUSTER_HOROVOD_LIVING:
        return "living";
    case MUSTER_HOROVOD_ASKED:
        return "asked";
    case MUSTER_HOROVOD_EXITED:
    default:
        return "exited";
    }
}

/* A line for the round, and one for each slot: "HOST:LOCAL_RANK RANKS STATE". */
static void print_round(FILE *file, const struct muster_horovod_round *round, const char *state)
{
    (void)fprintf(file, "round %llu %s\n", (unsigned long long)round->number, state);
    for (uint32_t rank = 0; rank < round->plan.size; rank++) {
        const struct muster_horovod_slot *slot = &round->slots[rank];
        struct muster_horovod_ranks ranks = muster_horovod_round_ranks(round, slot);
        char text[MUSTER_HOROVOD_RANKS_SIZE];
        muster_horovod_ranks_format(&ranks, text);
        (void)fprintf(file, "%s:%u %s %s\n", round->plan.hosts[slot->host].name, slot->local_rank,
                      text, state_name(slot));
    }
}

/* The running round, and behind it the next one if there is one. */
static struct muster_rpc_response show(const struct muster_horovod_rounds *rounds)
{
    AUTO_FREE char *text = NULL;
    size_t size_bytes = 0;
    FILE *file = open_memstream(&text, &size_bytes);
    if (file == NULL) {
        return (struct muster_rpc_response){.code = MUSTER_RPC_INTERNAL};
    }
    if (rounds->running.number != 0) {
        print_round(file, &rounds->running, "formed");
    }
    if (rounds->next.number != 0) {
        print_round(file, &rounds->next, rounds->next_void ? "void" : "forming");
    }
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        return (struct muster_rpc_response){.code = MUSTER_RPC_INTERNAL};
    }
    return muster_horovod_response(MUSTER_RPC_OK, text, size_bytes);
}

static muster_status put(struct muster_horovod_call *call)
{
    struct muster_horovod_job *job = call->job;
    struct muster_horovod_plan plan;
    TRY(muster_horovod_plan_parse(call->request->body, call->request->size_bytes, &plan));
    TRY(muster_horovod_rounds_plan(&job->rounds, &plan));
    muster_horovod_scopes_finish(&job->next); /* of a plan that did not form */
    muster_horovod_job_form(job, call->ready);
    return MUSTER_OK;
}

/* Ends the job: whoever waits is removed. */
static void end_job(struct muster_horovod_call *call)
{
    while (call->job->asks != NULL) {
        muster_horovod_ask_respond(call->job, call->job->asks, muster_horovod_removed(),
                                   call->ready);
    }
    muster_horovod_job_remove(call->horovod, call->job);
    call->job = NULL;
}

bool muster_horovod_launcher(struct muster_horovod_call *call)
{
    if (strcmp(call->path.key, "plan") != 0) {
        call->response = muster_rpc_response_error(
            MUSTER_RPC_INVALID_ARGUMENT, "key: scope muster has only the key plan, not \"%s\"",
            call->path.key);
        return true;
    }
    muster_status status = MUSTER_OK;
    switch (call->request->method) {
    case MUSTER_HOROVOD_PUT:
        status = put(call);
        call->response =
            status == MUSTER_OK ? show(&call->job->rounds) : muster_rpc_response_status(status);
        return true;
    case MUSTER_HOROVOD_GET:
        call->response = call->job->rounds.running.number != 0
                             ? show(&call->job->rounds)
                             : muster_horovod_response(MUSTER_RPC_NOT_FOUND, "", 0);
        return true;
    case MUSTER_HOROVOD_DELETE:
    default:
        end_job(call);
        call->response = muster_horovod_response(MUSTER_RPC_OK, "", 0);
        return true;
    }
}
