/* Fuzzes what a store may hold: each line is an event or a snapshot record of a job, or, after a V,
 * a value. A service either refuses it by name or starts with it, shows it, writes it again, and
 * starts with that. */
#include "rendezvous/routes/rpc.h"
#include "worker/base/log.h"

#include <stdlib.h>
#include <string.h>

enum { TEXTS_MAX = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A store that has the lines of an input, and keeps nothing. */
struct fuzzed_store {
    struct muster_store store; /* first */
    const char *text;
    size_t size;
};

/* The next line, without its end, which is stepped over. */
static const char *next_line(const char **text, size_t *left, size_t *ret_size)
{
    const char *line = *text;
    const char *end = memchr(line, '\n', *left);
    *ret_size = end != NULL ? (size_t)(end - line) : *left;
    size_t all = *ret_size + (end != NULL ? 1 : 0);
    *text += all;
    *left -= all;
    return line;
}

/* Lines at the start that name themselves records are the snapshot. */
static uint64_t count_records(const char *text, size_t left)
{
    uint64_t records = 0;
    while (left > 0 && records < TEXTS_MAX) {
        size_t size;
        const char *line = next_line(&text, &left, &size);
        if (memmem(line, size, "\"kept\"", 6) == NULL) {
            break;
        }
        records++;
    }
    return records;
}

static muster_status load_value(const struct muster_store_reader *reader, const char *line,
                                size_t size)
{
    char key[] = "key0";
    key[3] = size > 1 ? (char)('a' + (unsigned char)line[1] % 8) : '0';
    return reader->value(reader->user, 0, key, line + (size > 1 ? 2 : 1),
                         size - (size > 1 ? 2 : 1));
}

static muster_status load(struct muster_store *store, const struct muster_store_reader *reader)
{
    const struct fuzzed_store *fuzzed = (const struct fuzzed_store *)store;
    const char *text = fuzzed->text;
    size_t left = fuzzed->size;
    uint64_t records = count_records(text, left);
    uint64_t sequence = records; /* the first event is after those that the snapshot replaced */
    const struct muster_store_job job = {.name = "j",
                                         .token = "",
                                         .link_token = "0123456789abcdef0123456789abcdef",
                                         .record_count = records,
                                         .first_event = sequence};
    muster_status status = reader->job(reader->user, &job);
    for (uint64_t i = 0; i < TEXTS_MAX && left > 0 && status == MUSTER_OK; i++) {
        size_t size;
        const char *line = next_line(&text, &left, &size);
        if (i < records) {
            status = reader->record(reader->user, i, line, size);
        } else if (size > 0 && line[0] == 'V') {
            status = load_value(reader, line, size);
        } else {
            status = reader->event(reader->user, sequence++, line, size);
        }
    }
    return status;
}

static void quiet(enum muster_log_level level, const char *text)
{
    (void)level;
    (void)text;
}

static void respond(struct muster_held_request *held, struct muster_rpc_response response)
{
    (void)held;
    muster_rpc_response_finish(&response);
}

static void ask(struct muster_service *service, enum muster_rpc_method method, const char *body)
{
    static struct muster_held_request held;
    held = (struct muster_held_request){.respond = respond};
    const struct muster_rpc_request request = {.method = method,
                                               .rights = MUSTER_RIGHT_WORK | MUSTER_RIGHT_LIST,
                                               .body = body,
                                               .size_bytes = strlen(body),
                                               .timeout_ms = UINT32_MAX};
    struct muster_rpc_response response;
    if (muster_rpc_handle(service, &request, &held, &response)) {
        muster_rpc_response_finish(&response);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct muster_service_config config;
    struct muster_store *memory = NULL;
    struct muster_service *service = NULL;
    muster_log_set_writer(quiet);
    muster_service_config_init(&config);
    if (muster_store_memory_open(&memory) != MUSTER_OK) {
        abort();
    }
    struct muster_store_ops ops = *memory->ops;
    ops.load = load;
    struct fuzzed_store fuzzed = {.store = {.ops = &ops}, .text = (const char *)data, .size = size};
    if (muster_service_create(&config, &fuzzed.store, &service) == MUSTER_OK) {
        ask(service, MUSTER_RPC_GET_JOB, "{\"job\":\"j\"}");
        ask(service, MUSTER_RPC_LIST_JOBS, "{}");
        ask(service, MUSTER_RPC_ADD, "{\"job\":\"j\",\"key\":\"keya\",\"amount\":\"1\"}");
        ask(service, MUSTER_RPC_RESIZE, "{\"job\":\"j\",\"targetSize\":2}");
        ask(service, MUSTER_RPC_END_JOB, "{\"job\":\"j\"}");
        muster_service_destroy(service);
    } else if (strlen(muster_last_error()) == 0) {
        abort(); /* a refusal says why */
    }
    muster_store_close(memory);
    return 0;
}
