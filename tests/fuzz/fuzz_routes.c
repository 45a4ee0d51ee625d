/* Fuzzes the routes: each line is a request, a letter for the method and its JSON; or a path of
 * Horovod's workers with a method and a body. Each is answered, at the latest when the service
 * ends. */
#include "rendezvous/horovod/horovod.h"
#include "rendezvous/routes/rpc.h"
#include "worker/base/log.h"

#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 64, PATH_SIZE = 600 };
static const char prefix[] = "/horovod/";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzzed {
    struct muster_held_request held; /* first */
    bool answered;
};

static void quiet(enum muster_log_level level, const char *text)
{
    (void)level;
    (void)text;
}

static void take(struct fuzzed *fuzzed, struct muster_rpc_response response)
{
    if (fuzzed->answered) {
        abort(); /* once */
    }
    fuzzed->answered = true;
    muster_rpc_response_finish(&response);
}

static void respond(struct muster_held_request *held, struct muster_rpc_response response)
{
    take((struct fuzzed *)held, response);
}

static void call_service(struct muster_service *service, const char *line, size_t size,
                         struct fuzzed *fuzzed)
{
    const struct muster_rpc_request request = {
        .method = (enum muster_rpc_method)((unsigned char)line[0] % MUSTER_RPC_METHOD_COUNT),
        .address = "10.0.0.1",
        .rights = MUSTER_RIGHT_WORK | MUSTER_RIGHT_LIST,
        .body = line + 1,
        .size_bytes = size - 1,
        .timeout_ms = UINT32_MAX,
    };
    struct muster_rpc_response response;
    if (muster_rpc_handle(service, &request, &fuzzed->held, &response)) {
        take(fuzzed, response);
    }
}

/* "/horovod/JOB.SECRET/SCOPE/KEY", a blank, 0 to 2 for the method, the body. */
static void call_horovod(struct muster_horovod *horovod, const char *line, size_t size,
                         struct fuzzed *fuzzed)
{
    const char *blank = memchr(line, ' ', size);
    size_t length = blank != NULL ? (size_t)(blank - line) : size;
    size_t rest = size - length;
    char path[PATH_SIZE];
    if (length >= sizeof path || memchr(line, '\0', length) != NULL) {
        fuzzed->answered = true;
        return;
    }
    memcpy(path, line, length);
    path[length] = '\0';
    const struct muster_horovod_request request = {
        .method = rest > 1 ? (enum muster_horovod_method)((unsigned char)line[length + 1] % 3)
                           : MUSTER_HOROVOD_GET,
        .path = path,
        .body = rest > 2 ? line + length + 2 : "",
        .size_bytes = rest > 2 ? rest - 2 : 0,
        .creates = true,
    };
    struct muster_rpc_response response;
    if (muster_horovod_handle(horovod, &request, &fuzzed->held, &response)) {
        take(fuzzed, response);
    }
}

static void call_lines(struct muster_service *service, struct muster_horovod *horovod,
                       const char *text, size_t size, struct fuzzed calls[LINES_MAX])
{
    for (unsigned i = 0; i < LINES_MAX && size > 0; i++) {
        const char *end = memchr(text, '\n', size);
        size_t length = end != NULL ? (size_t)(end - text) : size;
        calls[i] = (struct fuzzed){.held = {.respond = respond}};
        if (length > 0 && length >= sizeof prefix - 1 &&
            memcmp(text, prefix, sizeof prefix - 1) == 0) {
            call_horovod(horovod, text, length, &calls[i]);
        } else if (length > 0) {
            call_service(service, text, length, &calls[i]);
        } else {
            calls[i].answered = true;
        }
        length += end != NULL;
        text += length;
        size -= length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct muster_service_config config;
    struct muster_store *store = NULL;
    struct muster_service *service = NULL;
    struct muster_horovod *horovod = NULL;
    struct fuzzed *calls = calloc(LINES_MAX, sizeof *calls);
    muster_log_set_writer(quiet);
    muster_service_config_init(&config);
    config.settings.settle_ms = 0;
    if (calls == NULL || muster_store_memory_open(&store) != MUSTER_OK ||
        muster_service_create(&config, store, &service) != MUSTER_OK ||
        muster_horovod_create(NULL, &horovod) != MUSTER_OK) {
        abort();
    }
    for (unsigned i = 0; i < LINES_MAX; i++) {
        calls[i].answered = true;
    }
    call_lines(service, horovod, (const char *)data, size, calls);
    muster_service_quiesce(service);
    muster_horovod_quiesce(horovod);
    muster_service_destroy(service);
    muster_horovod_destroy(horovod);
    muster_store_close(store);
    for (unsigned i = 0; i < LINES_MAX; i++) {
        if (!calls[i].answered) {
            abort(); /* a caller would wait for ever */
        }
    }
    free(calls);
    return 0;
}
