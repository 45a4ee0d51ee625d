/* Finding a name in a table of names. */
#include "collectives/call/names.h"

#include <stdio.h>
#include <string.h>

muster_status muster_name_parse(const char *what, const char *name, const char *const *names,
                                unsigned count, unsigned *ret_index)
{
    char all[512] = "";
    size_t used = 0;
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_index = i;
            return MUSTER_OK;
        }
        int wrote = snprintf(all + used, sizeof all - used, "%s%s", i == 0 ? "" : ", ", names[i]);
        used += (size_t)wrote; /* all tables fit easily */
    }
    return muster_error_set(MUSTER_INVALID, "no %s is called \"%.64s\"; known are %s", what, name,
                            all);
}
