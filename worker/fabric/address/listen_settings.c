/* The options `listen` and `interface`: their variables, checks and defaults. */
#include "worker/fabric/address/listen_settings.h"

#include "worker/base/option_parse.h"
#include "worker/fabric/address/address_choice.h"

#include <stdlib.h>

void muster_listen_read_environment(muster_options *options)
{
    options->listen = muster_option_variable("MUSTER_LISTEN");
    options->interface = muster_option_variable("MUSTER_INTERFACE");
}

static muster_status check_interface(const muster_options *options)
{
    if (options->interface == NULL) {
        return MUSTER_OK;
    }
    if (options->listen != NULL && options->listen[0] != '*') {
        return muster_error_set(
            MUSTER_INVALID,
            "interface (MUSTER_INTERFACE) \"%.80s\": there is nothing to choose, "
            "listen (MUSTER_LISTEN) is the address \"%.80s\"",
            options->interface, options->listen);
    }
    muster_status status = muster_interfaces_check(options->interface);
    return status == MUSTER_OK ? MUSTER_OK
                               : muster_error_prefix(status, "interface (MUSTER_INTERFACE)");
}

muster_status muster_listen_parse(const muster_options *options,
                                  struct muster_listen_settings *ret_settings)
{
    struct muster_listen_settings settings = {NULL, NULL};
    TRY(check_interface(options));
    muster_status status = muster_option_copy(options->listen, &settings.listen);
    if (status == MUSTER_OK) {
        status = muster_option_copy(options->interface, &settings.interfaces);
    }
    if (status != MUSTER_OK) {
        muster_listen_finish(&settings);
        return status;
    }
    *ret_settings = settings;
    return MUSTER_OK;
}

void muster_listen_finish(struct muster_listen_settings *settings)
{
    free(settings->listen);
    free(settings->interfaces);
    *settings = (struct muster_listen_settings){NULL, NULL};
}

const char *muster_listen_at(const struct muster_listen_settings *settings,
                             const char *first_address)
{
    if (settings->listen != NULL) {
        return settings->listen;
    }
    bool alone = settings->interfaces == NULL && first_address[0] != '\0' &&
                 muster_address_is_loopback(first_address);
    return alone ? first_address : "*";
}
