/* TLS on one connection. OpenSSL reads and writes through this file, so that one system call takes
 * many records, none is copied more often than it must be, and no signal is raised. */
#include "worker/base/status.h"
#include "worker/fabric/tls/tls_parts.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    /* Read behind what OpenSSL asks for. It asks for a header, then for the record: behind a small
     * piece there are more records, behind a large one the next header. */
    AHEAD_BYTES = 4096,
    HANDSHAKE_BYTE = 22, /* a TLS record that begins a connection */
    ALERTS = 1000,       /* OpenSSL's reasons from here on are alerts of the peer */
};

enum ending {
    GOING_ON = 0,
    ENDED = 1,  /* by TLS's rules */
    BROKEN = 2, /* the reason says how */
    CUT = 3,    /* below TLS; likewise */
};

struct muster_tls_channel {
    struct muster_tls *tls; /* held */
    SSL *ssl;
    int fd;
    enum ending ending;
    bool greeted;       /* the handshake is over */
    bool dry;           /* the socket has nothing more for now, or is not to be asked */
    bool hung_up;       /* the socket is at its end, */
    int socket_error;   /* or this has happened to it */
    uint64_t records;   /* written with the present key */
    unsigned char *out; /* TLS_OUT_BYTES, or NULL; encrypted, and not taken by the kernel: */
    size_t out_start, out_end;
    size_t ahead_start, ahead_end;
    unsigned char ahead[AHEAD_BYTES];
    char reason[MUSTER_REASON_SIZE];
};

bool muster_tls_begins(unsigned char first_byte)
{
    return first_byte == HANDSHAKE_BYTE;
}

/* The socket, as OpenSSL sees it -------------------------------------------------------------- */

static int wait_for_socket(BIO *bio, struct muster_tls_channel *channel)
{
    channel->dry = true;
    BIO_set_retry_read(bio);
    return -1;
}

static int take_ahead(struct muster_tls_channel *channel, char *to, size_t size)
{
    size_t left = channel->ahead_end - channel->ahead_start;
    size_t taken = size < left ? size : left;
    memcpy(to, channel->ahead + channel->ahead_start, taken);
    channel->ahead_start += taken;
    return (int)taken;
}

static int read_socket(BIO *bio, char *to, int size)
{
    struct muster_tls_channel *channel = BIO_get_data(bio);
    size_t asked = (size_t)size;
    BIO_clear_retry_flags(bio);
    if (channel->ahead_start < channel->ahead_end) {
        return take_ahead(channel, to, asked);
    }
    if (channel->dry) {
        return wait_for_socket(bio, channel);
    }
    size_t behind = asked < AHEAD_BYTES ? AHEAD_BYTES : SSL3_RT_HEADER_LENGTH;
    struct iovec parts[2] = {{.iov_base = to, .iov_len = asked},
                             {.iov_base = channel->ahead, .iov_len = behind}};
    ssize_t got = readv(channel->fd, parts, 2);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return wait_for_socket(bio, channel);
    }
    if (got <= 0) {
        channel->hung_up = got == 0;
        channel->socket_error = got < 0 ? errno : 0;
        return got < 0 ? -1 : 0;
    }
    size_t bytes = (size_t)got;
    channel->dry = bytes < asked + behind;
    channel->ahead_start = 0;
    channel->ahead_end = bytes > asked ? bytes - asked : 0;
    return (int)(bytes < asked ? bytes : asked);
}

static bool have_out(struct muster_tls_channel *channel)
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
    if (!have_out(channel)) {
        channel->socket_error = ENOMEM;
        return -1;
    }
    if (TLS_OUT_BYTES - channel->out_end < (size_t)size) {
        BIO_set_retry_write(bio); /* in a handshake with long chains of certificates */
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
    return command == BIO_CTRL_FLUSH || (command == BIO_CTRL_EOF && channel->hung_up);
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

/* Beginning and end -------------------------------------------------------------------------- */

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

bool muster_tls_is_cut(const struct muster_tls_channel *channel)
{
    return channel->ending == CUT;
}

const char *muster_tls_reason(const struct muster_tls_channel *channel)
{
    return channel->reason;
}

/* Looks at what OpenSSL has left behind. Alerts before errors: a peer that refuses hangs up, too.
 */
static void note_failure(struct muster_tls_channel *channel)
{
    unsigned long error = ERR_peek_last_error();
    int reason = ERR_GET_REASON(error);
    long verdict = SSL_get_verify_result(channel->ssl);
    const char *text = ERR_reason_error_string(error);
    size_t size = sizeof channel->reason;
    channel->ending = BROKEN;
    if (ERR_GET_LIB(error) == ERR_LIB_SSL && reason > ALERTS) {
        (void)snprintf(channel->reason, size, "it refuses this member by the TLS alert \"%s\"",
                       SSL_alert_desc_string_long(reason - ALERTS));
    } else if (verdict != X509_V_OK) {
        (void)snprintf(channel->reason, size, "its certificate is refused: %s",
                       X509_verify_cert_error_string(verdict));
    } else if (channel->socket_error != 0) {
        channel->ending = CUT;
        (void)snprintf(channel->reason, size, "%s", strerror(channel->socket_error));
    } else if (channel->hung_up) {
        channel->ending = CUT;
        (void)snprintf(channel->reason, size, "%s",
                       channel->greeted ? "it hung up without ending TLS"
                                        : "it hung up during the handshake of TLS");
    } else {
        (void)snprintf(channel->reason, size, "TLS: %s", text != NULL ? text : "unknown failure");
    }
    ERR_clear_error();
}

/* Going out ---------------------------------------------------------------------------------- */

static void give_back_out(struct muster_tls_channel *channel)
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

/* To the kernel, as much as it takes. MUSTER_RETRY: not all; MUSTER_INVALID: errno says why. */
static muster_status push(struct muster_tls_channel *channel)
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
        give_back_out(channel);
    }
    return MUSTER_OK;
}

bool muster_tls_has_backlog(const struct muster_tls_channel *channel)
{
    return channel != NULL && channel->out_start < channel->out_end;
}

/* Where in the parts the next plain byte is. */
struct cursor {
    const struct iovec *parts;
    int count;
    size_t at;
};

static void move_on(struct cursor *cursor, size_t bytes)
{
    cursor->at += bytes;
    while (cursor->count > 0 && cursor->at == cursor->parts->iov_len) {
        cursor->parts++;
        cursor->count--;
        cursor->at = 0;
    }
}

/* The plain bytes of the next record: where they lie if that is one place, else gathered. */
static size_t next_record(struct cursor *cursor, unsigned char *gather,
                          const unsigned char **ret_bytes)
{
    const unsigned char *bytes = (const unsigned char *)cursor->parts->iov_base + cursor->at;
    size_t left = cursor->parts->iov_len - cursor->at;
    if (left >= TLS_RECORD_BYTES || cursor->count == 1) {
        size_t size = left < TLS_RECORD_BYTES ? left : TLS_RECORD_BYTES;
        move_on(cursor, size);
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
        move_on(cursor, taken);
    }
    *ret_bytes = gather;
    return size;
}

static bool write_record(struct muster_tls_channel *channel, const unsigned char *bytes,
                         size_t size)
{
    size_t written = 0;
    if (++channel->records == channel->tls->records_a_key) {
        channel->records = 0;
        if (SSL_key_update(channel->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
            return false;
        }
    }
    return SSL_write_ex(channel->ssl, bytes, size, &written) == 1 && written == size;
}

/* Reading finds the connection at its end, and says why. */
static ssize_t give_up_sending(struct muster_tls_channel *channel)
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
    muster_status status = push(channel);
    move_on(&cursor, 0);
    ERR_clear_error();
    while (status == MUSTER_OK && cursor.count > 0) {
        const unsigned char *bytes = NULL;
        size_t size = next_record(&cursor, channel->tls->gather, &bytes);
        if (!write_record(channel, bytes, size)) {
            return give_up_sending(channel);
        }
        taken += (ssize_t)size;
        if (cursor.count == 0 || TLS_OUT_BYTES - channel->out_end < TLS_RECORD_ROOM) {
            status = push(channel);
        }
    }
    if (status == MUSTER_INVALID || (status == MUSTER_RETRY && taken == 0)) {
        return -1; /* push() has set errno */
    }
    return taken;
}

void muster_tls_end(struct muster_tls_channel *channel)
{
    ERR_clear_error();
    (void)SSL_shutdown(channel->ssl);
    ERR_clear_error();
    muster_status status = push(channel);
    (void)status;
}

/* Coming in ---------------------------------------------------------------------------------- */

muster_status muster_tls_handshake(struct muster_tls_channel *channel)
{
    channel->dry = false;
    ERR_clear_error();
    int done = SSL_do_handshake(channel->ssl);
    int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(channel->ssl, done);
    if (done == 1) {
        channel->greeted = true;
    } else if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
        note_failure(channel);
    }
    muster_status pushed = push(channel); /* an alert, too */
    if (channel->ending != GOING_ON) {
        return MUSTER_INVALID;
    }
    /* A peer that takes nothing more may have said why: reading finds that. */
    return done == 1 && pushed != MUSTER_RETRY ? MUSTER_OK : MUSTER_RETRY;
}

/* Up to `size` bytes of one record; 0 if there are none now. */
static size_t read_record(struct muster_tls_channel *channel, unsigned char *to, size_t size)
{
    size_t got = 0;
    if (channel->ending != GOING_ON || SSL_read_ex(channel->ssl, to, size, &got) == 1) {
        return got;
    }
    switch (SSL_get_error(channel->ssl, 0)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        break;
    case SSL_ERROR_ZERO_RETURN:
        channel->ending = ENDED;
        break;
    default:
        note_failure(channel);
    }
    return 0;
}

ssize_t muster_tls_receive(struct muster_tls_channel *channel, const struct iovec *parts, int count,
                           bool held)
{
    size_t total = 0;
    channel->dry = held;
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
    if (total > 0 || channel->ending == ENDED) {
        return (ssize_t)total;
    }
    errno = channel->ending != GOING_ON ? EPROTO : EAGAIN;
    return -1;
}

bool muster_tls_holds(const struct muster_tls_channel *channel)
{
    return channel != NULL &&
           (channel->ending != GOING_ON || channel->ahead_start < channel->ahead_end ||
            SSL_pending(channel->ssl) > 0);
}
