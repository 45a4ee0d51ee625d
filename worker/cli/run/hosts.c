/* Pretended hosts: parses --hosts, and chooses the host of the next worker. */
#include "worker/cli/run/hosts.h"

#include "worker/base/cleanup.h"
#include "worker/base/option_parse.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static bool name_is_good(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && strchr("._-", name[i]) == NULL) {
            return false;
        }
    }
    return length > 0 && length < MUSTER_HOST_SIZE;
}

static muster_status check_name(const struct muster_hosts *hosts, const char *entry)
{
    size_t length = strcspn(entry, ":");
    if (!name_is_good(entry, length)) {
        return muster_error_set(MUSTER_INVALID,
                                "--hosts: \"%.80s\": a host is 1 to %d letters, digits, '.', '_' "
                                "or '-', then ':' and its number of slots, as in a:2,b:2",
                                entry, MUSTER_HOST_SIZE - 1);
    }
    for (uint32_t i = 0; i < hosts->count; i++) {
        if (strlen(hosts->items[i].name) == length &&
            strncmp(hosts->items[i].name, entry, length) == 0) {
            return muster_error_set(MUSTER_INVALID, "--hosts: \"%.80s\" is named twice",
                                    hosts->items[i].name);
        }
    }
    return MUSTER_OK;
}

static muster_status add_host(struct muster_hosts *hosts, const char *entry)
{
    TRY(check_name(hosts, entry));
    if (hosts->count == MUSTER_HOSTS_MAX) {
        return muster_error_set(MUSTER_INVALID, "--hosts: more than %d hosts", MUSTER_HOSTS_MAX);
    }
    uint32_t slots = 1;
    size_t length = strcspn(entry, ":");
    if (entry[length] == ':') {
        TRY(muster_option_parse_number("--hosts: slots", entry + length + 1, 1, MUSTER_RUN_SIZE_MAX,
                                       &slots));
    }
    if (hosts->slots + slots > MUSTER_RUN_SIZE_MAX) {
        return muster_error_set(MUSTER_INVALID, "--hosts: more than %d slots", MUSTER_RUN_SIZE_MAX);
    }
    struct muster_host_slots *host = &hosts->items[hosts->count++];
    memcpy(host->name, entry, length);
    host->slots = slots;
    hosts->slots += slots;
    return MUSTER_OK;
}

muster_status muster_hosts_parse(const char *text, struct muster_hosts *ret_hosts)
{
    AUTO_FREE struct muster_hosts *hosts = calloc(1, sizeof *hosts);
    AUTO_FREE char *copy = strdup(text);
    if (hosts == NULL || copy == NULL) {
        return muster_error_set(MUSTER_FATAL, "--hosts: out of memory");
    }
    char *rest = copy;
    for (char *entry = strsep(&rest, ","); entry != NULL; entry = strsep(&rest, ",")) {
        TRY(add_host(hosts, entry));
    }
    *ret_hosts = *hosts;
    return MUSTER_OK;
}

struct muster_host_slots *muster_hosts_choose(struct muster_hosts *hosts)
{
    struct muster_host_slots *best = NULL;
    for (uint32_t i = 0; i < hosts->count; i++) {
        struct muster_host_slots *host = &hosts->items[i];
        if (host->running < host->slots) {
            return host;
        }
        /* compares running / slots without a division */
        if (best == NULL ||
            (uint64_t)host->running * best->slots < (uint64_t)best->running * host->slots) {
            best = host;
        }
    }
    return best;
}
