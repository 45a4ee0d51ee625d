/* The steps of the service's threads, one at a time. */
#include "rendezvous/service/driven.h"

#include "rendezvous/service/jobs.h"

void muster_driven_tick(struct muster_service *service)
{
    muster_clock_thread_run_once(&service->clock);
}

int64_t muster_driven_next_tick_ns(struct muster_service *service)
{
    return muster_clock_thread_next_ns(&service->clock);
}

bool muster_driven_sync(struct muster_service *service)
{
    return muster_commits_run_once(&service->commits);
}

bool muster_driven_sync_is_due(struct muster_service *service)
{
    return service->commits.waiting != NULL || service->commits.written_to;
}

bool muster_driven_compact(struct muster_service *service, bool (*between)(void *user), void *user)
{
    return muster_compactor_run_once(&service->compactor, between, user);
}
