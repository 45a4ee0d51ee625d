/* Parsing and printing the parameters of a hierarchical allreduce. */
#include "collectives/algorithms/hierarchical/hierarchy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/algorithms/generators.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

_Static_assert(MUSTER_EXCHANGE_END <= 16, "an exchange has 4 bits");

struct muster_hierarchy muster_hierarchy_of(uint32_t variant)
{
    unsigned doublings = variant >> 21 & 7;
    return (struct muster_hierarchy){.local = variant & 15,
                                     .cross = variant >> 4 & 15,
                                     .world = variant >> 8 & 15,
                                     .leaders = variant >> 12 & MUSTER_LEADERS_MAX,
                                     .levels = variant >> 20 & 1 ? 2 : 0,
                                     .pieces = doublings > 0 ? 1U << doublings : 0};
}

static void list_exchanges(char *ret_names, size_t size)
{
    size_t used = 0;
    for (unsigned kind = 1; kind < MUSTER_EXCHANGE_END && used < size; kind++) {
        used += (size_t)snprintf(ret_names + used, size - used, "%s%s", used == 0 ? "" : ", ",
                                 muster_exchange_of(kind)->name);
    }
}

static muster_status parse_exchange(const char *key, const char *value, unsigned *ret_kind)
{
    for (unsigned kind = 1; kind < MUSTER_EXCHANGE_END; kind++) {
        if (strcmp(muster_exchange_of(kind)->name, value) == 0) {
            *ret_kind = kind;
            return MUSTER_OK;
        }
    }
    char names[256];
    list_exchanges(names, sizeof names);
    return muster_error_set(MUSTER_INVALID, "%s=%.64s: must be one of %s", key, value, names);
}

static muster_status parse_number(const char *key, const char *value, unsigned least, unsigned most,
                                  unsigned *ret_number)
{
    char *end = NULL;
    unsigned long number = strtoul(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || number < least || number > most) {
        return muster_error_set(MUSTER_INVALID, "%s=%.64s: must be a number from %u to %u", key,
                                value, least, most);
    }
    *ret_number = (unsigned)number;
    return MUSTER_OK;
}

/* One "key=value". */
static muster_status parse_word(char *word, struct muster_hierarchy *hierarchy)
{
    struct {
        const char *key;
        unsigned *value;
        unsigned least, most; /* 0: the value is the name of an exchange */
    } const fields[] = {
        {"local", &hierarchy->local, 0, 0},
        {"cross", &hierarchy->cross, 0, 0},
        {"world", &hierarchy->world, 0, 0},
        {"leaders", &hierarchy->leaders, 1, MUSTER_LEADERS_MAX},
        {"levels", &hierarchy->levels, 2, 2},
        {"pieces", &hierarchy->pieces, 2, MUSTER_PIECES_MAX},
    };
    char *value = word;
    const char *key = strsep(&value, "=");
    for (size_t i = 0; i < sizeof fields / sizeof fields[0] && value != NULL; i++) {
        if (strcmp(fields[i].key, key) != 0) {
            continue;
        }
        if (*fields[i].value != 0) {
            return muster_error_set(MUSTER_INVALID, "%s is given twice", key);
        }
        return fields[i].most == 0
                   ? parse_exchange(key, value, fields[i].value)
                   : parse_number(key, value, fields[i].least, fields[i].most, fields[i].value);
    }
    return muster_error_set(MUSTER_INVALID,
                            "\"%.64s\" is none of local=, cross=, world=, leaders=, levels=, "
                            "pieces=",
                            key);
}

/* "local=ring,leaders=2" as a variant. */
static muster_status parse(const char *text, uint32_t *ret_variant)
{
    AUTO_FREE char *copy = strdup(text);
    if (copy == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    struct muster_hierarchy hierarchy = {0};
    for (char *rest = copy; rest != NULL;) {
        char *word = strsep(&rest, ",");
        TRY(parse_word(word, &hierarchy));
    }
    if ((hierarchy.pieces & (hierarchy.pieces - 1)) != 0) {
        return muster_error_set(MUSTER_INVALID, "pieces=%u: must be a power of two",
                                hierarchy.pieces);
    }
    if (hierarchy.cross == MUSTER_EXCHANGE_GROUP || hierarchy.world == MUSTER_EXCHANGE_GROUP) {
        return muster_error_set(MUSTER_INVALID, "%s=group: group is an exchange within hosts",
                                hierarchy.cross == MUSTER_EXCHANGE_GROUP ? "cross" : "world");
    }
    uint32_t doublings = hierarchy.pieces == 0 ? 0 : muster_log2_down(hierarchy.pieces);
    *ret_variant = MUSTER_HIERARCHY(hierarchy.local, hierarchy.cross, hierarchy.world,
                                    hierarchy.leaders, hierarchy.levels == 2) |
                   MUSTER_HIERARCHY_PIECES(doublings);
    return MUSTER_OK;
}

static const char *name_of(unsigned kind)
{
    const struct muster_exchange *exchange = muster_exchange_of(kind);
    return exchange != NULL ? exchange->name : "unknown";
}

/* The reverse of parse(): lists the parameters that are not 0. */
static void print(uint32_t variant, char *ret_text, size_t size)
{
    const struct muster_hierarchy hierarchy = muster_hierarchy_of(variant);
    const struct {
        const char *key;
        unsigned kind;
    } fields[] = {
        {"local", hierarchy.local}, {"cross", hierarchy.cross}, {"world", hierarchy.world}};
    size_t used = 0;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0] && used < size; i++) {
        if (fields[i].kind != 0) {
            used += (size_t)snprintf(ret_text + used, size - used, "%s%s=%s", used == 0 ? "" : ",",
                                     fields[i].key, name_of(fields[i].kind));
        }
    }
    const struct {
        const char *key;
        unsigned number;
    } numbers[] = {
        {"leaders", hierarchy.leaders}, {"levels", hierarchy.levels}, {"pieces", hierarchy.pieces}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && used < size; i++) {
        if (numbers[i].number != 0) {
            used += (size_t)snprintf(ret_text + used, size - used, "%s%s=%u", used == 0 ? "" : ",",
                                     numbers[i].key, numbers[i].number);
        }
    }
}

const struct muster_variants muster_hierarchy_variants = {.parse = parse, .print = print};
