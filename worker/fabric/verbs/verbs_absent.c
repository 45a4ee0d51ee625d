/* Links over RDMA where Muster is built without the headers of libibverbs: there are none, and so
 * no slot but the first is ever called. */
#include "worker/fabric/link.h"
#include "worker/fabric/verbs/verbs_off.h"

static muster_status verbs_start(struct muster_fabric *fabric,
                                 const struct muster_fabric_options *options, void **ret_transport)
{
    (void)fabric;
    (void)ret_transport;
    if (options->verbs.use == MUSTER_VERBS_OFF) {
        return MUSTER_OK;
    }
    return muster_verbs_is_off(
        options, muster_error_set(MUSTER_INVALID,
                                  "this libmuster was built without libibverbs, and has none"));
}

const struct muster_link_ops muster_verbs_ops = {.scheme = "verbs", .start = verbs_start};
