/* Limits by rate: the head of a stranger's request, and the answers that say it gave no good token.
 */
#include "rendezvous/http/http_parts.h"

#include "worker/base/clock.h"

#include <string.h>

enum { MS_PER_S = 1000 };

static struct muster_http_refusal refuse(struct muster_http_request *request, uint32_t wait_ms,
                                         bool failures)
{
    request->retry_after_s = (wait_ms + MS_PER_S - 1) / MS_PER_S;
    muster_status_count_limited(request->http->service, failures);
    return (struct muster_http_refusal){
        .http = muster_rpc_code_http(MUSTER_RPC_RESOURCE_EXHAUSTED),
        .code = MUSTER_RPC_RESOURCE_EXHAUSTED,
        .what = failures ? "too many requests from this address had no token of this server, or a "
                           "wrong token"
                         : "too many requests from this address, or from all that show no token of "
                           "this server",
    };
}

/* Those of Horovod's poll every 10 ms, with a secret in their path. What is asked for health has no
 * token to fail with. */
struct muster_http_refusal muster_http_check_rate(struct muster_http_request *request,
                                                  const char *url)
{
    struct muster_http *http = request->http;
    const char *address = muster_connection_address(request->socket);
    int64_t now_ns = muster_clock_ns();
    uint32_t wait_ms = 0;
    enum muster_status_path page = MUSTER_STATUS_PAGE;
    bool is_health = muster_status_find(url, &page) &&
                     (page == MUSTER_STATUS_HEALTHZ || page == MUSTER_STATUS_READYZ);
    if (request->trusted) {
        return (struct muster_http_refusal){0};
    }
    AUTO_LOCK(&http->rates_mutex);
    if (!muster_horovod_path_is(url) &&
        !muster_rates_take(&http->rates, address, now_ns, &wait_ms)) {
        return refuse(request, wait_ms, false);
    }
    if (!is_health && !muster_rates_may_fail(&http->rates, address, now_ns, &wait_ms)) {
        return refuse(request, wait_ms, true);
    }
    return (struct muster_http_refusal){0};
}

void muster_http_note_answer(const struct muster_http_request *request, enum muster_rpc_code code)
{
    if (code == MUSTER_RPC_UNAUTHENTICATED && !request->trusted) {
        AUTO_LOCK(&request->http->rates_mutex);
        muster_rates_fail(&request->http->rates, muster_connection_address(request->socket),
                          muster_clock_ns());
    }
}
