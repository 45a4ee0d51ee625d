/* TLS on one connection. OpenSSL reads and writes the socket through this file (a BIO), so that one
 * system call moves many records, no record is copied more often than necessary, and no SIGPIPE is
 * raised. */
#include "worker/base/status.h"
#include "worker/fabric/tls/tls_parts.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    /* Bytes read beyond what OpenSSL requests. It requests a header, then the record: more records
     * follow a small request, and the next header follows a large one. */
    READ_AHEAD_BYTES = 4096,
    HANDSHAKE_BYTE = 22, /* the first byte of a TLS connection: a record of type handshake */
    ALERTS = 1000,       /* OpenSSL's reason codes above this are alerts of the peer */
};

enum tls_state {
    TLS_RUNNING = 0,
    TLS_CLOSED = 1,       /* by the peer's close_notify */
    TLS_FAILED = 2,       /* see reason */
    TLS_DISCONNECTED = 3, /* below TLS; see reason */
};

struct muster_tls_channel {
    struct muster_tls *tls; /* held */
    SSL *ssl;
    int fd;
    enum tls_state state;
    bool handshake_done;
    bool socket_drained; /* the socket has nothing to read now, or must not be read */
    bool peer_closed;    /* end of file on the socket */
    int socket_error;    /* errno of a failed read; 0: none */
    uint64_t records;    /* written with the current key */
    unsigned char *out;  /* TLS_OUT_BYTES, or NULL: the backlog is [out_start, out_end) */
    size_t out_start, out_end;
    size_t read_ahead_start, read_ahead_end;
    unsigned char read_ahead[READ_AHEAD_BYTES];
    char reason[MUSTER_REASON_SIZE];
};

bool muster_tls_is_handshake(unsigned char first_byte)
{
    return first_byte == HANDSHAKE_BYTE;
}

/* The socket as a BIO ------------------------------------------------------------------------- */

static int report_drained(BIO *bio, struct muster_tls_channel *channel)
{
    channel->socket_drained = true;
    BIO_set_retry_read(bio);
    return -1;
}

static int copy_read_ahead(struct muster_tls_channel *channel, char *to, size_t size)
{
    size_t left = channel->read_ahead_end - channel->read_ahead_start;
    size_t taken = size < left ? size : left;
    memcpy(to, channel->read_ahead + channel->read_ahead_start, taken);
    channel->read_ahead_start += taken;
    return (int)taken;
}

/* Returns bytes read ahead, if there are any; otherwise reads the socket, for the request and
 * beyond it. */
static int read_socket(BIO *bio, char *to, int size)
{
    struct muster_tls_channel *channel = BIO_get_data(bio);
    size_t requested = (size_t)size;
    BIO_clear_retry_flags(bio);
    if (channel->read_ahead_start < channel->read_ahead_end) {
        return copy_read_ahead(channel, to, requested);
    }
    if (channel->socket_drained) {
        return report_drained(bio, channel);
    }
    size_t beyond = requested < READ_AHEAD_BYTES ? READ_AHEAD_BYTES : SSL3_RT_HEADER_LENGTH;
    struct iovec parts[2] = {{.iov_base = to, .iov_len = requested},
                             {.iov_base = channel->read_ahead, .iov_len = beyond}};
    ssize_t got = readv(channel->fd, parts, 2);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return report_drained(bio, channel);
    }
    if (got <= 0) {
        channel->peer_closed = got == 0;
        channel->socket_error = got < 0 ? errno : 0;
        return got < 0 ? -1 : 0;
    }
    size_t bytes = (size_t)got;
    channel->socket_drained = bytes < requested + beyond;
    channel->read_ahead_start = 0;
    channel->read_ahead_end = bytes > requested ? bytes - requested : 0;
    return (int)(bytes < requested ? bytes : requested);
}

static bool ensure_out(struct muster_tls_channel *channel)
{
    if (channel->out == NULL) {
        channel->out = channel->tls->spare;
        channel->tls->spare = NULL;
    }
    if (channel->out == NULL) {
        channel->out = malloc(TLS_OUT_BYTES);
    }
    return channel->out != NULL;
}

static int write_socket(BIO *bio, const char *bytes, int size)
{
    struct muster_tls_channel *channel = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (!ensure_out(channel)) {
        channel->socket_error = ENOMEM;
        return -1;
    }
    if (TLS_OUT_BYTES - channel->out_end < (size_t)size) {
        BIO_set_retry_write(bio); /* only long certificate chains of a handshake can fill it */
        return -1;
    }
    memcpy(channel->out + channel->out_end, bytes, (size_t)size);
    channel->out_end += (size_t)size;
    return size;
}

static long control_socket(BIO *bio, int command, long number, void *pointer)
{
    const struct muster_tls_channel *channel = BIO_get_data(bio);
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH || (command == BIO_CTRL_EOF && channel->peer_closed);
}

muster_status muster_tls_make_socket_method(BIO_METHOD **ret_method)
{
    int type = BIO_get_new_index();
    BIO_METHOD *method = type < 0 ? NULL : BIO_meth_new(type | BIO_TYPE_SOURCE_SINK, "muster");
    if (method == NULL || BIO_meth_set_read(method, read_socket) != 1 ||
        BIO_meth_set_write(method, write_socket) != 1 ||
        BIO_meth_set_ctrl(method, control_socket) != 1) {
        BIO_meth_free(method);
        return muster_error_set(MUSTER_FATAL, "TLS: no memory");
    }
    *ret_method = method;
    return MUSTER_OK;
}

/* Create and destroy ------------------------------------------------------------------------- */

struct muster_tls_channel *muster_tls_channel_create(struct muster_tls *tls, int fd, bool dialling)
{
    struct muster_tls_channel *channel = calloc(1, sizeof *channel);
    BIO *bio = BIO_new(tls->socket);
    SSL *ssl = SSL_new(tls->context);
    if (channel == NULL || bio == NULL || ssl == NULL) {
        SSL_free(ssl);
        BIO_free(bio);
        free(channel);
        return NULL;
    }
    BIO_set_data(bio, channel);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    if (dialling) {
        SSL_set_connect_state(ssl);
    } else {
        SSL_set_accept_state(ssl);
    }
    muster_tls_hold(tls);
    channel->tls = tls;
    channel->ssl = ssl;
    channel->fd = fd;
    return channel;
}

void muster_tls_channel_destroy(struct muster_tls_channel *channel)
{
    if (channel == NULL) {
        return;
    }
    SSL_free(channel->ssl);
    free(channel->out);
    muster_tls_release(channel->tls);
    free(channel);
}

bool muster_tls_is_disconnected(const struct muster_tls_channel *channel)
{
    return channel->state == TLS_DISCONNECTED;
}

const char *muster_tls_reason(const struct muster_tls_channel *channel)
{
    return channel->reason;
}

/* Turns what OpenSSL, the certificate check and the socket report into a reason. Alerts come first:
 * a peer that refuses also closes the connection. */
static void note_failure(struct muster_tls_channel *channel)
{
    unsigned long error = ERR_peek_last_error();
    int reason = ERR_GET_REASON(error);
    long verdict = SSL_get_verify_result(channel->ssl);
    const char *text = ERR_reason_error_string(error);
    size_t size = sizeof channel->reason;
    channel->state = TLS_FAILED;
    if (ERR_GET_LIB(error) == ERR_LIB_SSL && reason > ALERTS) {
        (void)snprintf(channel->reason, size, "it refuses this member by the TLS alert \"%s\"",
                       SSL_alert_desc_string_long(reason - ALERTS));
    } else if (verdict != X509_V_OK) {
        (void)snprintf(channel->reason, size, "its certificate is refused: %s",
                       X509_verify_cert_error_string(verdict));
    } else if (channel->socket_error != 0) {
        channel->state = TLS_DISCONNECTED;
        (void)snprintf(channel->reason, size, "%s", strerror(channel->socket_error));
    } else if (channel->peer_closed) {
        channel->state = TLS_DISCONNECTED;
        (void)snprintf(channel->reason, size, "%s",
                       channel->handshake_done
                           ? "it closed the connection without ending TLS"
                           : "it closed the connection during the TLS handshake");
    } else {
        (void)snprintf(channel->reason, size, "TLS: %s", text != NULL ? text : "unknown failure");
    }
    ERR_clear_error();
}

/* Sending ------------------------------------------------------------------------------------ */

static void release_out(struct muster_tls_channel *channel)
{
    channel->out_start = 0;
    channel->out_end = 0;
    if (channel->tls->spare == NULL) {
        channel->tls->spare = channel->out;
    } else {
        free(channel->out);
    }
    channel->out = NULL;
}

/* Writes the backlog to the socket. MUSTER_RETRY: not all of it; MUSTER_INVALID: see errno. */
static muster_status flush_out(struct muster_tls_channel *channel)
{
    while (channel->out_start < channel->out_end) {
        ssize_t sent = send(channel->fd, channel->out + channel->out_start,
                            channel->out_end - channel->out_start, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return errno == EAGAIN ? MUSTER_RETRY : MUSTER_INVALID;
        }
        channel->out_start += sent > 0 ? (size_t)sent : 0;
    }
    if (channel->out != NULL) {
        release_out(channel);
    }
    return MUSTER_OK;
}

bool muster_tls_has_backlog(const struct muster_tls_channel *channel)
{
    return channel != NULL && channel->out_start < channel->out_end;
}

/* The position of the next plain byte in the parts. */
struct cursor {
    const struct iovec *parts;
    int count;
    size_t at;
};

static void advance_cursor(struct cursor *cursor, size_t bytes)
{
    cursor->at += bytes;
    while (cursor->count > 0 && cursor->at == cursor->parts->iov_len) {
        cursor->parts++;
        cursor->count--;
        cursor->at = 0;
    }
}

/* The plain bytes of the next record: in place if they are contiguous, otherwise gathered. */
static size_t next_record(struct cursor *cursor, unsigned char *gather,
                          const unsigned char **ret_bytes)
{
    const unsigned char *bytes = (const unsigned char *)cursor->parts->iov_base + cursor->at;
    size_t left = cursor->parts->iov_len - cursor->at;
    if (left >= TLS_RECORD_BYTES || cursor->count == 1) {
        size_t size = left < TLS_RECORD_BYTES ? left : TLS_RECORD_BYTES;
        advance_cursor(cursor, size);
        *ret_bytes = bytes;
        return size;
    }
    size_t size = 0;
    while (cursor->count > 0 && size < TLS_RECORD_BYTES) {
        bytes = (const unsigned char *)cursor->parts->iov_base + cursor->at;
        left = cursor->parts->iov_len - cursor->at;
        size_t taken = left < TLS_RECORD_BYTES - size ? left : TLS_RECORD_BYTES - size;
        memcpy(gather + size, bytes, taken);
        size += taken;
        advance_cursor(cursor, taken);
    }
    *ret_bytes = gather;
    return size;
}

static bool write_record(struct muster_tls_channel *channel, const unsigned char *bytes,
                         size_t size)
{
    size_t written = 0;
    if (++channel->records == channel->tls->records_per_key) {
        channel->records = 0;
        if (SSL_key_update(channel->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
            return false;
        }
    }
    return SSL_write_ex(channel->ssl, bytes, size, &written) == 1 && written == size;
}

/* Shuts the socket down: the next receive fails and reports this reason. */
static ssize_t fail_sending(struct muster_tls_channel *channel)
{
    note_failure(channel);
    (void)shutdown(channel->fd, SHUT_RDWR);
    errno = EPIPE;
    return -1;
}

ssize_t muster_tls_send(struct muster_tls_channel *channel, const struct iovec *parts, int count)
{
    struct cursor cursor = {.parts = parts, .count = count};
    ssize_t taken = 0;
    muster_status status = flush_out(channel);
    advance_cursor(&cursor, 0);
    ERR_clear_error();
    while (status == MUSTER_OK && cursor.count > 0) {
        const unsigned char *bytes = NULL;
        size_t size = next_record(&cursor, channel->tls->gather, &bytes);
        if (!write_record(channel, bytes, size)) {
            return fail_sending(channel);
        }
        taken += (ssize_t)size;
        if (cursor.count == 0 || TLS_OUT_BYTES - channel->out_end < TLS_RECORD_ROOM) {
            status = flush_out(channel);
        }
    }
    if (status == MUSTER_INVALID || (status == MUSTER_RETRY && taken == 0)) {
        return -1; /* errno is of flush_out() */
    }
    return taken;
}

void muster_tls_shutdown(struct muster_tls_channel *channel)
{
    ERR_clear_error();
    (void)SSL_shutdown(channel->ssl);
    ERR_clear_error();
    muster_status status = flush_out(channel);
    (void)status;
}

/* Receiving ---------------------------------------------------------------------------------- */

muster_status muster_tls_handshake(struct muster_tls_channel *channel)
{
    channel->socket_drained = false;
    ERR_clear_error();
    int done = SSL_do_handshake(channel->ssl);
    int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(channel->ssl, done);
    if (done == 1) {
        channel->handshake_done = true;
    } else if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
        note_failure(channel);
    }
    muster_status flushed = flush_out(channel); /* after a failure, OpenSSL's alert */
    if (channel->state != TLS_RUNNING) {
        return MUSTER_INVALID;
    }
    /* If writing fails, the peer may have sent an alert: the next read reports it. */
    return done == 1 && flushed != MUSTER_RETRY ? MUSTER_OK : MUSTER_RETRY;
}

/* Reads up to `size` bytes of one record; 0 if there are none now. */
static size_t read_record(struct muster_tls_channel *channel, unsigned char *to, size_t size)
{
    size_t got = 0;
    if (channel->state != TLS_RUNNING || SSL_read_ex(channel->ssl, to, size, &got) == 1) {
        return got;
    }
    switch (SSL_get_error(channel->ssl, 0)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        break;
    case SSL_ERROR_ZERO_RETURN:
        channel->state = TLS_CLOSED;
        break;
    default:
        note_failure(channel);
    }
    return 0;
}

/* Fills the parts from one record after the other until a part cannot be filled. A failure is
 * reported only when there are no bytes to return. */
ssize_t muster_tls_receive(struct muster_tls_channel *channel, const struct iovec *parts, int count,
                           bool buffered_only)
{
    size_t total = 0;
    channel->socket_drained = buffered_only;
    ERR_clear_error();
    for (int i = 0; i < count; i++) {
        unsigned char *to = parts[i].iov_base;
        size_t at = 0;
        size_t got = 1;
        while (at < parts[i].iov_len && got > 0) {
            got = read_record(channel, to + at, parts[i].iov_len - at);
            at += got;
        }
        total += at;
        if (at < parts[i].iov_len) {
            break;
        }
    }
    if (total > 0 || channel->state == TLS_CLOSED) {
        return (ssize_t)total;
    }
    errno = channel->state != TLS_RUNNING ? EPROTO : EAGAIN;
    return -1;
}

bool muster_tls_has_buffered(const struct muster_tls_channel *channel)
{
    return channel != NULL &&
           (channel->state != TLS_RUNNING || channel->read_ahead_start < channel->read_ahead_end ||
            SSL_pending(channel->ssl) > 0);
}
