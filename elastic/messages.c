#include "elastic/messages.h"

const char *muster_rpc_method_name(enum muster_rpc_method method)
{
    static const char *const names[MUSTER_RPC_METHOD_COUNT] = {
        "Join", "Watch", "Leave",  "Report",   "Resize", "Put",
        "Get",  "Wait",  "GetJob", "ListJobs", "EndJob",
    };
    return (unsigned)method < MUSTER_RPC_METHOD_COUNT ? names[method] : "unknown";
}
