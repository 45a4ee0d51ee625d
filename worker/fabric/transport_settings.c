/* The settings of transports, of any registry. */
#include "worker/fabric/transports.h"

#include <stdlib.h>
#include <string.h>

muster_status muster_transport_settings_add(struct muster_transport_settings *settings,
                                            const struct muster_transport *transport,
                                            const muster_options *options, bool required)
{
    void *parsed = NULL;
    bool used = required;
    if (settings->count == MUSTER_TRANSPORTS_MAX) {
        return muster_error_set(MUSTER_INVALID, "more than %d transports", MUSTER_TRANSPORTS_MAX);
    }
    if (transport->parse != NULL) {
        TRY(transport->parse(options, &used, &parsed));
    }
    if (used) {
        settings->rows[settings->count].transport = transport;
        settings->rows[settings->count++].settings = parsed;
    } else if (parsed != NULL) {
        transport->free_settings(parsed);
    }
    return MUSTER_OK;
}

void muster_transport_settings_destroy(struct muster_transport_settings *settings)
{
    for (uint32_t i = 0; settings != NULL && i < settings->count; i++) {
        if (settings->rows[i].settings != NULL) {
            settings->rows[i].transport->free_settings(settings->rows[i].settings);
        }
    }
    free(settings);
}

void *muster_transport_settings_find(const struct muster_transport_settings *settings,
                                     const char *name)
{
    for (uint32_t i = 0; i < settings->count; i++) {
        if (strcmp(settings->rows[i].transport->name, name) == 0) {
            return settings->rows[i].settings;
        }
    }
    return NULL;
}

bool muster_transport_is_named(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *item = list; item != NULL; item = strchr(item, ',')) {
        item += *item == ',';
        if (strncmp(item, name, length) == 0 && (item[length] == ',' || item[length] == '\0')) {
            return true;
        }
    }
    return false;
}
