/* Statuses as codes and back: the table of messages.h. */
#include "elastic/messages/messages.h"

enum muster_rpc_code muster_rpc_code_of_status(muster_status status)
{
    switch (status) {
    case MUSTER_OK:
        return MUSTER_RPC_OK;
    case MUSTER_INVALID:
        return MUSTER_RPC_INVALID_ARGUMENT;
    case MUSTER_RETRY:
        return MUSTER_RPC_UNAVAILABLE;
    case MUSTER_REJOIN:
        return MUSTER_RPC_ABORTED;
    case MUSTER_ENDED:
        return MUSTER_RPC_FAILED_PRECONDITION;
    case MUSTER_FATAL:
        return MUSTER_RPC_INTERNAL;
    }
    return MUSTER_RPC_UNKNOWN;
}

muster_status muster_rpc_code_status(enum muster_rpc_code code)
{
    switch (code) {
    case MUSTER_RPC_OK:
        return MUSTER_OK;
    case MUSTER_RPC_UNAVAILABLE:
    case MUSTER_RPC_CANCELED:
    case MUSTER_RPC_DEADLINE_EXCEEDED:
    case MUSTER_RPC_RESOURCE_EXHAUSTED:
        return MUSTER_RETRY;
    case MUSTER_RPC_ABORTED:
        return MUSTER_REJOIN;
    case MUSTER_RPC_FAILED_PRECONDITION:
        return MUSTER_ENDED;
    case MUSTER_RPC_INTERNAL:
    case MUSTER_RPC_UNKNOWN:
    case MUSTER_RPC_DATA_LOSS:
        return MUSTER_FATAL;
    default:
        return MUSTER_INVALID;
    }
}
