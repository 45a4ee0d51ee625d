/* Lines of the log as JSON objects. */
#include "rendezvous/musterd_log.h"

#include "worker/base/cleanup.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static json_t *now(void)
{
    struct timespec time = {0};
    struct tm parts = {0};
    char text[64];
    (void)clock_gettime(CLOCK_REALTIME, &time);
    (void)gmtime_r(&time.tv_sec, &parts);
    size_t used = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    (void)snprintf(text + used, sizeof text - used, ".%03ldZ", time.tv_nsec / 1000000);
    return json_string(text);
}

/* Moves the fields at the beginning of the text into the object; returns what follows them. */
static const char *take_fields(json_t *object, const char *text)
{
    for (;;) {
        size_t key = strspn(text, "abcdefghijklmnopqrstuvwxyz_");
        size_t end = strcspn(text, " ");
        if (key == 0 || text[key] != '=' || text[end] != ' ') {
            return text;
        }
        char name[32];
        (void)snprintf(name, sizeof name, "%.*s", (int)key, text);
        if (json_object_get(object, name) == NULL) { /* "level" and "time" stay the line's own */
            (void)json_object_set_new(object, name, json_stringn(text + key + 1, end - key - 1));
        }
        text += end + 1;
    }
}

void muster_musterd_log_json(enum muster_log_level level, const char *text)
{
    AUTO_FREE char *copy = strdup(text);
    json_t *object = json_object();
    if (copy == NULL || object == NULL) {
        json_decref(object);
        return;
    }
    json_t *whole = json_string(copy);
    for (char *c = copy; whole == NULL && *c != '\0'; c++) {
        if ((signed char)*c < 0) {
            *c = '?'; /* not UTF-8: a path, or a text that was cut */
        }
    }
    json_decref(whole);
    (void)json_object_set_new(object, "time", now());
    (void)json_object_set_new(object, "level", json_string(muster_log_level_name(level)));
    (void)json_object_set_new(object, "text", json_string(take_fields(object, copy)));
    AUTO_FREE char *line = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (line != NULL) {
        struct iovec parts[] = {{line, strlen(line)}, {(char[]){'\n'}, 1}};
        ssize_t written = writev(STDERR_FILENO, parts, 2);
        (void)written; /* there is nowhere to report that the log is gone */
    }
}
