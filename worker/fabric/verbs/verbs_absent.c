/* Stands in for the RDMA transport in a build without the header of libibverbs: there are no such
 * links, so only the slots below are ever called. */
#include "worker/fabric/link.h"
#include "worker/fabric/verbs/verbs_settings.h"
#include "worker/fabric/verbs/verbs_unavailable.h"

static muster_status verbs_start(struct muster_fabric *fabric, const void *settings,
                                 void **ret_transport)
{
    const struct muster_verbs_settings *own = settings;
    (void)fabric;
    (void)ret_transport;
    return muster_verbs_unavailable(
        own->required,
        muster_error_set(MUSTER_INVALID, "this libmuster was built without libibverbs"));
}

const struct muster_transport muster_verbs_transport = {
    .name = "verbs",
    .read_environment = muster_verbs_read_environment,
    .parse = muster_verbs_parse,
    .free_settings = muster_verbs_free_settings,
    .start = verbs_start,
};
