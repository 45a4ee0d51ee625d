/* musterd: the rendezvous service as a program. Starts store, service and HTTP, waits for a signal,
 * and stops them in reverse order. */
#include "rendezvous/epoch_begin.h"
#include "rendezvous/horovod/horovod.h"
#include "rendezvous/http/http.h"
#include "rendezvous/http/listen.h"
#include "rendezvous/musterd_log.h"
#include "rendezvous/musterd_options.h"
#include "rendezvous/store/store.h"
#include "worker/base/cleanup.h"
#include "worker/base/log.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* In the order of the start. */
struct musterd {
    struct muster_store *store;
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
    if (printf("musterd listens on http://%s, store %s\n", address, options->store) < 0 ||
        fflush(stdout) != 0) {
        muster_log(MUSTER_LOG_WARN, "cannot write to standard output");
    }
    return MUSTER_OK;
}

static muster_status start(const struct muster_musterd_options *options, struct musterd *musterd)
{
    AUTO_CLOSE int listen_fd = -1;
    TRY(muster_listen_open(options->listen, &listen_fd));
    TRY(muster_store_open(options->store, &musterd->store));
    struct muster_service_config service = options->service;
    TRY(muster_epoch_begin(musterd->store, &service.epoch));
    TRY(muster_service_create(&service, musterd->store, &musterd->service));
    TRY(muster_horovod_create(NULL, &musterd->horovod));
    const struct muster_http_config config = {.listen_fd = listen_fd,
                                              .transfer_timeout_ms =
                                                  MUSTER_HTTP_TRANSFER_TIMEOUT_MS,
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
}

static void wait_for_signal(const sigset_t *signals)
{
    int number = 0;
    while (sigwait(signals, &number) != 0) {
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
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* beyond ulimit -f the store fails as on a full disk */
    struct musterd musterd = {0};
    muster_status status = start(&options, &musterd);
    if (status == MUSTER_OK) {
        wait_for_signal(&signals);
    } else {
        (void)fprintf(stderr, "musterd: %s\n", muster_last_error());
    }
    stop(&musterd);
    return status == MUSTER_OK ? 0 : 1;
}
