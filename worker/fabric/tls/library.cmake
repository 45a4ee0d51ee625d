# TLS uses OpenSSL. Without it tls_absent.c takes its place.
muster_find(OPENSSL openssl libssl-dev)
list(APPEND MUSTER_OPTIONAL "TLS between workers        =OPENSSL")
if(OPENSSL_FOUND)
    list(APPEND MUSTER_WORKER_LIBRARIES PkgConfig::OPENSSL)
    list(APPEND MUSTER_LEFT_OUT tls/tls_absent.c)
else()
    list(APPEND MUSTER_LEFT_OUT tls/tls_context.c tls/tls_channel.c
        support/certificates.c "test_[a-z_]*tls[a-z_]*.c")
endif()
