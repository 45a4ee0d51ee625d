/* Takes the path of a Horovod worker's request apart. */
#include "rendezvous/horovod/horovod_path.h"

#include "elastic/messages/messages.h"

#include <string.h>

static const char prefix[] = "/horovod/";

enum { PARTS_MIN = 3, PARTS_MAX = 4 };

struct part {
    const char *text;
    size_t size_bytes;
};

bool muster_horovod_path_is(const char *path)
{
    return strncmp(path, prefix, sizeof prefix - 1) == 0;
}

/* The number of parts; 0: too many. */
static unsigned split(const char *text, struct part ret_parts[PARTS_MAX])
{
    unsigned count = 0;
    for (;;) {
        size_t size_bytes = strcspn(text, "/");
        if (count == PARTS_MAX) {
            return 0;
        }
        ret_parts[count++] = (struct part){.text = text, .size_bytes = size_bytes};
        if (text[size_bytes] == '\0') {
            return count;
        }
        text += size_bytes + 1;
    }
}

/* Without ":PORT", or ":-1" if the worker has no port. */
static struct part without_port(struct part part)
{
    const char *colon = memchr(part.text, ':', part.size_bytes);
    if (colon != NULL) {
        size_t rest = part.size_bytes - (size_t)(colon - part.text) - 1;
        size_t digits = strspn(colon + 1, "-0123456789");
        part.size_bytes -= digits >= rest ? rest + 1 : 0;
    }
    return part;
}

static bool copy_word(struct part part, char *ret_text, size_t size)
{
    size_t length =
        strspn(part.text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
    if (part.size_bytes == 0 || part.size_bytes >= size || length < part.size_bytes) {
        return false;
    }
    memcpy(ret_text, part.text, part.size_bytes);
    ret_text[part.size_bytes] = '\0';
    return true;
}

/* Scopes and keys: any printable ASCII. */
static muster_status copy_name(struct part part, const char *what, size_t size, char *ret_text)
{
    if (part.size_bytes == 0 || part.size_bytes >= size) {
        return muster_error_set(MUSTER_INVALID, "%s: %zu bytes, must be 1 to %zu", what,
                                part.size_bytes, size - 1);
    }
    for (size_t i = 0; i < part.size_bytes; i++) {
        if (part.text[i] <= ' ' || part.text[i] > '~') {
            return muster_error_set(MUSTER_INVALID, "%s: byte %zu is not printable ASCII", what, i);
        }
    }
    memcpy(ret_text, part.text, part.size_bytes);
    ret_text[part.size_bytes] = '\0';
    return MUSTER_OK;
}

/* JOB.SECRET; the job may contain '.', the secret does not. */
static muster_status copy_job(struct part part, struct muster_horovod_path *path)
{
    const char *dot = memrchr(part.text, '.', part.size_bytes);
    size_t job_bytes = dot != NULL ? (size_t)(dot - part.text) : part.size_bytes;
    if (job_bytes < sizeof path->job) {
        memcpy(path->job, part.text, job_bytes);
        path->job[job_bytes] = '\0';
    }
    if (dot == NULL || job_bytes >= sizeof path->job || !muster_job_name_valid(path->job)) {
        return muster_error_set(MUSTER_INVALID,
                                "path: after /horovod/ comes JOB.SECRET, with a job name of 1 to "
                                "%zu letters, digits, '.', '-' and '_'",
                                sizeof path->job - 1);
    }
    struct part secret = {.text = dot + 1, .size_bytes = part.size_bytes - job_bytes - 1};
    if (!copy_word(secret, path->secret, sizeof path->secret)) {
        return muster_error_set(MUSTER_INVALID,
                                "job %s: its secret must be 1 to %d letters, digits, '-' and '_'",
                                path->job, MUSTER_HOROVOD_SECRET_SIZE - 1);
    }
    return MUSTER_OK;
}

muster_status muster_horovod_path_parse(const char *path, struct muster_horovod_path *ret_path)
{
    struct part parts[PARTS_MAX];
    struct muster_horovod_path parsed = {0};
    unsigned count = split(path + sizeof prefix - 1, parts);
    if (count < PARTS_MIN) {
        return muster_error_set(MUSTER_INVALID,
                                "path: must be /horovod/JOB.SECRET/SCOPE/KEY or "
                                "/horovod/JOB.SECRET/WORKER/SCOPE/KEY");
    }
    if (count == PARTS_MIN) {
        parts[0] = without_port(parts[0]);
    }
    TRY(copy_job(parts[0], &parsed));
    if (count == PARTS_MAX &&
        !copy_word(without_port(parts[1]), parsed.worker, sizeof parsed.worker)) {
        return muster_error_set(MUSTER_INVALID,
                                "job %s: the worker's name must be 1 to %d letters, digits, '-' "
                                "and '_'",
                                parsed.job, MUSTER_HOROVOD_WORKER_SIZE - 1);
    }
    TRY(copy_name(parts[count - 2], "scope", sizeof parsed.scope, parsed.scope));
    TRY(copy_name(parts[count - 1], "key", sizeof parsed.key, parsed.key));
    *ret_path = parsed;
    return MUSTER_OK;
}
