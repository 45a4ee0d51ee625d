# libibverbs is loaded at run time; the build needs only its header. Without it verbs_absent.c takes its place,
# and only those other sources are compiled that do not need the header.
muster_find(IBVERBS libibverbs libibverbs-dev)
list(APPEND MUSTER_OPTIONAL "links over RDMA            =IBVERBS")
if(IBVERBS_FOUND)
    list(APPEND MUSTER_LEFT_OUT verbs/verbs_absent.c)
else()
    file(GLOB needing_header RELATIVE ${CMAKE_CURRENT_LIST_DIR}/.. CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
    list(FILTER needing_header EXCLUDE REGEX "/(verbs_(absent|choice|unavailable|unused|settings)|registrations)[.]c$")
    list(APPEND MUSTER_LEFT_OUT ${needing_header}
        "support/verbs_(spy|pretend[a-z_]*).c" "verbs/test_[a-z_]*.c" "test_verbs_pretend[a-z_]*.c")
endif()
