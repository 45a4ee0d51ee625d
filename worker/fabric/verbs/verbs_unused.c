/* Finds active RDMA devices in sysfs, for a line of the log where RDMA is off. */
#include "worker/fabric/verbs/verbs_unused.h"

#include "worker/base/option_parse.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The kernel writes "4: ACTIVE". */
static bool is_active(const char *folder, const char *device, const char *port)
{
    char path[512];
    char state[32] = "";
    int length = snprintf(path, sizeof path, "%s/%s/ports/%s/state", folder, device, port);
    FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
    if (file == NULL) {
        return false;
    }
    bool read = fgets(state, sizeof state, file) != NULL;
    (void)fclose(file);
    return read && strstr(state, "ACTIVE") != NULL;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Sorted names; returns their number, 0 if there is no such folder. */
static int list_names(const char *path, struct dirent ***ret_names)
{
    int count = scandir(path, ret_names, is_visible, alphasort);
    if (count <= 0) {
        *ret_names = NULL;
    }
    return count > 0 ? count : 0;
}

static void free_names(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++) {
        free(names[i]);
    }
    free(names);
}

/* Appends the active ports of a device, as long as they fit. */
static void add_ports(const char *folder, const char *device, char *list, size_t size)
{
    char path[512];
    struct dirent **ports = NULL;
    int length = snprintf(path, sizeof path, "%s/%s/ports", folder, device);
    int count = length > 0 && (size_t)length < sizeof path ? list_names(path, &ports) : 0;
    for (int i = 0; i < count; i++) {
        char item[300];
        size_t used = strlen(list);
        int needed = snprintf(item, sizeof item, "%s%.200s port %.20s", used > 0 ? ", " : "",
                              device, ports[i]->d_name);
        if (is_active(folder, device, ports[i]->d_name) && used + (size_t)needed < size) {
            memcpy(list + used, item, (size_t)needed + 1);
        }
    }
    free_names(ports, count);
}

bool muster_verbs_list_active(const char *folder, char *ret_list, size_t size)
{
    struct dirent **devices = NULL;
    char list[512] = "";
    size_t room = size < sizeof list ? size : sizeof list;
    int count = list_names(folder, &devices);
    for (int i = 0; i < count; i++) {
        add_ports(folder, devices[i]->d_name, list, room);
    }
    free_names(devices, count);
    if (list[0] == '\0') {
        return false;
    }
    memcpy(ret_list, list, strlen(list) + 1);
    return true;
}

bool muster_verbs_find_unused(char *ret_text, size_t size)
{
    char list[256];
    if (muster_option_variable("MUSTER_VERBS") != NULL ||
        !muster_verbs_list_active("/sys/class/infiniband", list, sizeof list)) {
        return false;
    }
    (void)snprintf(ret_text, size,
                   "RDMA devices are active and not used: %s (MUSTER_VERBS=1 uses them, "
                   "MUSTER_VERBS=0 hides this line)",
                   list);
    return true;
}
