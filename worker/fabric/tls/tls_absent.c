/* Stands in for TLS in a build without OpenSSL: requesting TLS is an error, so no channel is ever
 * created. */
#include "worker/base/status.h"
#include "worker/fabric/tls/tls.h"

#include <errno.h>

muster_status muster_tls_create(const struct muster_tls_files *files, struct muster_tls **ret_tls)
{
    (void)files;
    (void)ret_tls;
    return muster_error_set(MUSTER_INVALID,
                            "TLS (MUSTER_TLS_CERTIFICATE and the others): this "
                            "libmuster was built without OpenSSL");
}

void muster_tls_hold(struct muster_tls *tls)
{
    (void)tls;
}

void muster_tls_release(struct muster_tls *tls)
{
    (void)tls;
}

struct muster_tls_channel *muster_tls_channel_create(struct muster_tls *tls, int fd, bool dialling)
{
    (void)tls;
    (void)fd;
    (void)dialling;
    return NULL;
}

void muster_tls_channel_destroy(struct muster_tls_channel *channel)
{
    (void)channel;
}

muster_status muster_tls_handshake(struct muster_tls_channel *channel)
{
    (void)channel;
    return MUSTER_INVALID;
}

ssize_t muster_tls_send(struct muster_tls_channel *channel, const struct iovec *parts, int count)
{
    (void)channel;
    (void)parts;
    (void)count;
    errno = ENOTSUP;
    return -1;
}

void muster_tls_reload(struct muster_tls **tls)
{
    (void)tls;
}

bool muster_tls_is_handshake(unsigned char first_byte)
{
    (void)first_byte;
    return false;
}

bool muster_tls_has_backlog(const struct muster_tls_channel *channel)
{
    (void)channel;
    return false;
}

ssize_t muster_tls_receive(struct muster_tls_channel *channel, const struct iovec *parts, int count,
                           bool buffered_only)
{
    (void)channel;
    (void)parts;
    (void)count;
    (void)buffered_only;
    errno = ENOTSUP;
    return -1;
}

bool muster_tls_has_buffered(const struct muster_tls_channel *channel)
{
    (void)channel;
    return false;
}

void muster_tls_shutdown(struct muster_tls_channel *channel)
{
    (void)channel;
}

bool muster_tls_is_disconnected(const struct muster_tls_channel *channel)
{
    (void)channel;
    return false;
}

const char *muster_tls_reason(const struct muster_tls_channel *channel)
{
    (void)channel;
    return "";
}
