/* The registry of transports, one row each. No other file knows all transports. */
#include "worker/fabric/transports.h"

#include "worker/fabric/address/address.h"

#include <stdlib.h>

/* Best first. */
#define TRANSPORTS(ROW) \
    ROW(inproc)         \
    ROW(shm)            \
    ROW(verbs)          \
    ROW(tcp)

#define DECLARE(name) extern const struct muster_transport muster_##name##_transport;
#define POINT_TO(name) &muster_##name##_transport,

TRANSPORTS(DECLARE)

static const struct muster_transport *const transports[] = {TRANSPORTS(POINT_TO)};
#define TRANSPORTS_COUNT (sizeof transports / sizeof transports[0])
_Static_assert(TRANSPORTS_COUNT <= MUSTER_TRANSPORTS_MAX, "raise it");

void muster_transports_read_environment(muster_options *options)
{
    for (size_t i = 0; i < TRANSPORTS_COUNT; i++) {
        if (transports[i]->read_environment != NULL) {
            transports[i]->read_environment(options);
        }
    }
}

muster_status muster_transports_parse(const muster_options *options, const char *only,
                                      struct muster_transport_settings **ret_settings)
{
    struct muster_transport_settings *settings = calloc(1, sizeof *settings);
    muster_status status =
        settings != NULL ? MUSTER_OK : muster_error_set(MUSTER_FATAL, "out of memory");
    for (size_t i = 0; i < TRANSPORTS_COUNT && status == MUSTER_OK; i++) {
        bool named = only != NULL && muster_transport_is_named(only, transports[i]->name);
        if (only == NULL || named) {
            status = muster_transport_settings_add(settings, transports[i], options, named);
        }
    }
    if (status != MUSTER_OK) {
        muster_transport_settings_destroy(settings);
        return status;
    }
    *ret_settings = settings;
    return MUSTER_OK;
}

static bool is_used(const struct muster_transport_settings *settings,
                    const struct muster_transport *transport)
{
    uint32_t row = 0;
    while (row < settings->count && settings->rows[row].transport != transport) {
        row++;
    }
    return row < settings->count;
}

bool muster_transports_find_unused(const struct muster_transport_settings *settings, char *ret_text,
                                   size_t size)
{
    for (size_t i = 0; i < TRANSPORTS_COUNT; i++) {
        if (transports[i]->find_unused != NULL && !is_used(settings, transports[i]) &&
            transports[i]->find_unused(ret_text, size)) {
            return true;
        }
    }
    return false;
}

bool muster_fabric_address_is_local(const char *address)
{
    for (size_t i = 0; i < TRANSPORTS_COUNT; i++) {
        if (transports[i]->shares_memory &&
            muster_address_has_scheme(address, transports[i]->name)) {
            return true;
        }
    }
    return false;
}
