/* The names of tensors. Their texts are made once, when a name is first seen. */
#include "worker/trace/timeline_names.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct muster_timeline_named {
    UT_hash_handle hh;
    uint32_t number;
    char name[];
};

/* Names are bytes; what is no UTF-8 is shown with question marks. NULL: no memory. */
static char *make_text(const char *name)
{
    json_t *string = json_string(name);
    char *shown = string == NULL ? strdup(name) : NULL;
    for (char *at = shown; at != NULL && *at != '\0'; at++) {
        if (*at < ' ' || *at > '~') {
            *at = '?';
        }
    }
    string = string == NULL && shown != NULL ? json_string(shown) : string;
    char *text = string != NULL ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    json_decref(string);
    free(shown);
    return text;
}

static bool reserve_one(struct muster_timeline_names *names)
{
    if (names->count < names->capacity) {
        return true;
    }
    uint32_t capacity = 2 * names->capacity + 64;
    char **grown = reallocarray(names->texts, capacity, sizeof *grown);
    if (grown != NULL) {
        names->texts = grown;
        names->capacity = capacity;
    }
    return grown != NULL;
}

uint32_t muster_timeline_names_find(struct muster_timeline_names *names, const char *name)
{
    struct muster_timeline_named *named = NULL;
    size_t length = strlen(name);
    HASH_FIND(hh, names->table, name, length, named);
    if (named != NULL) {
        return named->number;
    }
    bool room = names->count < MUSTER_TIMELINE_NAMES_MAX && reserve_one(names);
    named = room ? calloc(1, sizeof *named + length + 1) : NULL;
    char *text = named != NULL ? make_text(name) : NULL;
    if (text == NULL) {
        free(named);
        return 0;
    }
    memcpy(named->name, name, length + 1);
    names->texts[names->count++] = text;
    named->number = names->count;
    HASH_ADD_KEYPTR(hh, names->table, named->name, length, named);
    return named->number;
}

const char *muster_timeline_names_text(const struct muster_timeline_names *names, uint32_t number)
{
    return number == 0 ? "\"a tensor\"" : names->texts[number - 1];
}

void muster_timeline_names_finish(struct muster_timeline_names *names)
{
    struct muster_timeline_named *named = NULL;
    struct muster_timeline_named *next = NULL;
    HASH_ITER(hh, names->table, named, next)
    {
        HASH_DEL(names->table, named);
        free(named);
    }
    for (uint32_t i = 0; i < names->count; i++) {
        free(names->texts[i]);
    }
    free(names->texts);
}
