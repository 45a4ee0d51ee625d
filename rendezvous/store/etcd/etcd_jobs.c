/* The jobs that this server has claimed, and the keys of a job. */
#include "rendezvous/store/etcd/store_etcd_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void muster_etcd_key(const struct etcd_store *store, const char *kind, const char *job,
                     char ret_key[MUSTER_ETCD_KEY_SIZE])
{
    (void)snprintf(ret_key, MUSTER_ETCD_KEY_SIZE, "%s%s/%s",
                   muster_etcd_client_prefix(store->client), kind, job);
}

void muster_etcd_folder(const struct etcd_store *store, const char *job,
                        char ret_folder[MUSTER_ETCD_KEY_SIZE])
{
    (void)snprintf(ret_folder, MUSTER_ETCD_KEY_SIZE, "%sdata/%s/",
                   muster_etcd_client_prefix(store->client), job);
}

struct etcd_job *muster_etcd_find_locked(struct etcd_store *store, const char *name)
{
    struct etcd_job *job = NULL;
    HASH_FIND(by_name, store->by_name, name, strlen(name), job);
    return job != NULL && !job->lost && job->tenure == atomic_load(&store->session.tenure) ? job
                                                                                           : NULL;
}

muster_status muster_etcd_not_claimed(const struct etcd_store *store, const char *name)
{
    return muster_error_set(MUSTER_RETRY,
                            "store %s: this server does not own job %s any more: try again",
                            muster_etcd_client_name(store->client), name);
}

void muster_etcd_forget_locked(struct etcd_store *store, struct etcd_job *job)
{
    HASH_DELETE(by_name, store->by_name, job);
    HASH_DELETE(by_claim, store->by_claim, job);
    store->pending_bytes -= job->changes.size_bytes;
    muster_etcd_changes_clear(&job->changes);
    muster_etcd_head_finish(&job->head);
    free(job);
}
