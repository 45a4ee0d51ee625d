/* musterd: the rendezvous service as a program. Starts store, service and HTTP, waits for a signal,
 * and stops them in reverse order. */
#include "rendezvous/epoch_begin.h"
#include "rendezvous/horovod/horovod.h"
#include "rendezvous/http/access.h"
#include "rendezvous/http/forward.h"
#include "rendezvous/http/http.h"
#include "rendezvous/http/https.h"
#include "rendezvous/http/listen.h"
#include "rendezvous/musterd_log.h"
#include "rendezvous/musterd_options.h"
#include "rendezvous/store/store.h"
#include "worker/base/cleanup.h"
#include "worker/base/log.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { RELOAD_INTERVAL_S = 2 }; /* between looks at the files of certificates */

/* In the order of the start. */
struct musterd {
    struct muster_access *access;
    struct muster_https *https; /* NULL: plain HTTP */
    struct muster_store *store;
    char url[MUSTER_STORE_URL_SIZE]; /* for a shared store */
    struct muster_service *service;
    struct muster_horovod *horovod;
    struct muster_http *http;
};

static muster_status announce(const struct muster_musterd_options *options, int listen_fd)
{
    char address[MUSTER_LISTEN_ADDRESS_SIZE];
    uint16_t port;
    TRY(muster_listen_describe(listen_fd, address, &port));
    if (options->port_file != NULL) {
        TRY(muster_listen_write_port(options->port_file, port));
    }
    if (printf("musterd listens on %s://%s, store %s\n",
               options->certificate != NULL ? "https" : "http", address, options->store) < 0 ||
        fflush(stdout) != 0) {
        muster_log(MUSTER_LOG_WARN, "cannot write to standard output");
    }
    return MUSTER_OK;
}

/* Who can reach the port could end every job: nobody opens it to a network by accident. */
static muster_status refuse_open_port(const struct muster_musterd_options *options, int listen_fd,
                                      struct muster_access *access)
{
    if (options->insecure || options->certificate != NULL || muster_listen_is_local(listen_fd) ||
        muster_access_guards(access)) {
        return MUSTER_OK;
    }
    return muster_error_set(MUSTER_INVALID,
                            "--listen %s is reached from other machines, and there is no token: "
                            "give --tokens FILE or MUSTERD_WORKER_TOKEN, or --certificate and "
                            "--key, or say --insecure",
                            options->listen);
}

/* Where other servers reach this one, if the store is shared: where it listens, unless that is no
 * address for others. */
static muster_status find_url(const struct muster_musterd_options *options, int listen_fd,
                              char ret_url[MUSTER_STORE_URL_SIZE])
{
    char address[MUSTER_LISTEN_ADDRESS_SIZE];
    uint16_t port;
    const char *given = options->advertise;
    TRY(muster_listen_describe(listen_fd, address, &port));
    bool everywhere = strncmp(address, "0.0.0.0:", strlen("0.0.0.0:")) == 0 ||
                      strncmp(address, "[::]:", strlen("[::]:")) == 0;
    if (given == NULL && everywhere) {
        return muster_error_set(MUSTER_INVALID,
                                "--listen %s is no address where other servers reach this one: "
                                "give --advertise http://HOST:PORT",
                                options->listen);
    }
    bool http = given != NULL && (strncmp(given, "http://", strlen("http://")) == 0 ||
                                  strncmp(given, "https://", strlen("https://")) == 0);
    if (given != NULL &&
        (!http || strlen(given) >= MUSTER_STORE_URL_SIZE || strpbrk(given, " \t\"") != NULL)) {
        return muster_error_set(MUSTER_INVALID, "--advertise \"%.200s\": it is http://HOST:PORT",
                                given);
    }
    (void)snprintf(ret_url, MUSTER_STORE_URL_SIZE, "%s%s",
                   given != NULL                  ? ""
                   : options->certificate != NULL ? "https://"
                                                  : "http://",
                   given != NULL ? given : address);
    return MUSTER_OK;
}

static muster_status start_service(const struct muster_musterd_options *options, int listen_fd,
                                   struct musterd *musterd)
{
    struct muster_service_config config = options->service;
    const struct muster_call_files files = {.authority = options->etcd_authority,
                                            .certificate = options->etcd_certificate,
                                            .key = options->etcd_key};
    TRY(muster_store_open(options->store, &files, &musterd->store));
    if (musterd->store->shared != NULL) {
        TRY(find_url(options, listen_fd, musterd->url));
        config.url = musterd->url;
    }
    TRY(muster_epoch_begin(musterd->store, !options->only_server, &config.epoch));
    return muster_service_create(&config, musterd->store, &musterd->service);
}

static muster_status start(const struct muster_musterd_options *options, struct musterd *musterd)
{
    AUTO_CLOSE int listen_fd = -1;
    TRY(muster_access_create(options->tokens, &musterd->access));
    TRY(muster_listen_open(options->listen, &listen_fd));
    TRY(refuse_open_port(options, listen_fd, musterd->access));
    if (options->certificate != NULL) {
        const struct muster_https_files files = {.certificate = options->certificate,
                                                 .key = options->key,
                                                 .client_authority = options->client_authority};
        TRY(muster_https_create(&files, &musterd->https));
    }
    TRY(start_service(options, listen_fd, musterd));
    TRY(muster_horovod_create(NULL, &musterd->horovod));
    const struct muster_call_files forward = {.authority = options->client_authority,
                                              .certificate = options->certificate,
                                              .key = options->key};
    const struct muster_http_config config = {
        .listen_fd = listen_fd,
        .access = musterd->access,
        .https = musterd->https,
        .transfer_timeout_ms = MUSTER_HTTP_TRANSFER_TIMEOUT_MS,
        .connections_max = options->connections_max,
        .connections_per_address = options->connections_per_address,
        .requests_per_address = options->requests_per_address,
        .forward = musterd->store->shared != NULL ? &forward : NULL,
        .horovod = musterd->horovod};
    int bound_fd = TAKE_FD(listen_fd);
    TRY(muster_http_start(&config, musterd->service, &musterd->http));
    return announce(options, bound_fd);
}

static void stop(struct musterd *musterd)
{
    muster_http_stop(musterd->http);
    muster_horovod_destroy(musterd->horovod);
    muster_service_destroy(musterd->service);
    muster_store_close(musterd->store);
    muster_https_destroy(musterd->https);
    muster_access_destroy(musterd->access);
}

static void report_reload(const char *what, muster_status status)
{
    if (status == MUSTER_OK) {
        muster_log(MUSTER_LOG_INFO, "%s were read again", what);
    } else {
        muster_log(MUSTER_LOG_ERROR, "%s; the %s stay as they were", muster_last_error(), what);
    }
}

/* Certificates are also read when a file has changed: those who renew them need not know musterd.
 */
static void reload(struct musterd *musterd, bool asked)
{
    if (asked) {
        report_reload("tokens", muster_access_reload(musterd->access));
    }
    if (musterd->https != NULL && (muster_https_changed(musterd->https) || asked)) {
        report_reload("certificates", muster_https_reload(musterd->https));
    }
}

static void wait_for_signal(struct musterd *musterd, const sigset_t *signals)
{
    const struct timespec interval = {.tv_sec = RELOAD_INTERVAL_S};
    int number = -1;
    while (number != SIGINT && number != SIGTERM) {
        number = musterd->https != NULL ? sigtimedwait(signals, NULL, &interval)
                                        : sigwaitinfo(signals, NULL);
        if (number == SIGHUP || number < 0) {
            reload(musterd, number == SIGHUP);
        }
    }
    muster_log(MUSTER_LOG_INFO, "ending: %s", strsignal(number));
}

/* Signals are set up before the first thread starts, because threads inherit the mask. */
int main(int argc, char **argv)
{
    struct muster_musterd_options options;
    muster_musterd_options_parse(argc, argv, &options);
    enum muster_log_level level;
    if (options.log != NULL && muster_log_parse_level(options.log, &level) == MUSTER_OK) {
        muster_log_set_level(level);
    }
    if (options.log_json) {
        muster_log_set_writer(muster_musterd_log_json);
    }
    /* Blocked, so that only sigwait() receives them. */
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* beyond ulimit -f the store fails as on a full disk */
    struct musterd musterd = {0};
    muster_status status = start(&options, &musterd);
    if (status == MUSTER_OK) {
        wait_for_signal(&musterd, &signals);
    } else {
        (void)fprintf(stderr, "musterd: %s\n", muster_last_error());
    }
    stop(&musterd);
    return status == MUSTER_OK ? 0 : 1;
}
