# libibverbs is loaded at run time; the build needs only its header. Without it verbs_absent.c takes its
# place.
muster_find(IBVERBS libibverbs libibverbs-dev)
list(APPEND MUSTER_OPTIONAL "links over RDMA            =IBVERBS")
if(IBVERBS_FOUND)
    list(APPEND MUSTER_LEFT_OUT verbs/verbs_absent.c)
else()
    list(APPEND MUSTER_LEFT_OUT
        "verbs/verbs(_library|_device|_gpu|_path|_events|_connect|_listen|_send|_receive|_failover|_withdraw)?.c"
        "support/verbs_(spy|pretend[a-z_]*).c" "verbs/test_[a-z_]*.c" "test_verbs_pretend[a-z_]*.c")
endif()
