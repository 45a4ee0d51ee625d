/* The names of chunks. */
#include "collectives/draw/drawing.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    LETTERS = 52,    /* names of one letter */
    SPELLED_MAX = 4, /* letters of a run that are written out; longer runs are a-h */
};

/* A label while it is written. */
struct label {
    char *text;
    size_t size, used;
    bool full;
};

static void add(struct label *label, const char *text)
{
    size_t length = strlen(text);
    if (label->full || label->used + length + 1 > label->size) {
        label->full = true;
        return;
    }
    memcpy(label->text + label->used, text, length + 1);
    label->used += length;
}

/* a..z, A..Z; with more chunks all names are numbers. */
static void add_name(struct label *label, const struct muster_drawing *drawing, uint64_t chunk)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char name[24];
    if (drawing->chunks <= LETTERS) {
        (void)snprintf(name, sizeof name, "%c", letters[chunk]);
    } else {
        (void)snprintf(name, sizeof name, "%" PRIu64, chunk);
    }
    add(label, name);
}

static bool is_spelled(const struct muster_drawing *drawing, uint64_t first, uint64_t end)
{
    return end - first == 1 || (drawing->chunks <= LETTERS && end - first <= SPELLED_MAX);
}

static void add_run(struct label *label, const struct muster_drawing *drawing, uint64_t first,
                    uint64_t end)
{
    if (is_spelled(drawing, first, end)) {
        for (uint64_t chunk = first; chunk < end; chunk++) {
            add_name(label, drawing, chunk);
        }
        return;
    }
    add_name(label, drawing, first);
    add(label, "-");
    add_name(label, drawing, end - 1);
}

/* The rank that has a chunk and the rank that it is for, where every pair of ranks has its own
 * data. */
struct pair {
    uint32_t from, to;
};

static struct pair pair_of(const struct muster_drawing *drawing, uint64_t chunk)
{
    const struct muster_shape *shapes = drawing->shapes;
    struct pair pair = {.from = (uint32_t)(drawing->cuts[chunk] / drawing->stride)};
    uint64_t origin = drawing->cuts[chunk] % drawing->stride;
    struct muster_span whole = {.count = shapes[pair.from].count};
    bool parts = shapes[0].collective == MUSTER_PAIRWISE_EXCHANGE;
    uint32_t count = parts ? muster_shape_steps(&shapes[0]) : drawing->ranks;
    uint32_t part = 0;
    for (; part < count - 1; part++) {
        struct muster_span span = parts ? muster_span_part(whole, count, part)
                                        : muster_shape_input_block(&shapes[pair.from], part);
        if (origin < span.offset + span.count) {
            break;
        }
    }
    pair.to = parts ? muster_shape_partner(&shapes[pair.from], part) : part;
    return pair;
}

static uint32_t smaller(uint32_t left, uint32_t right)
{
    return left < right ? left : right;
}

static uint32_t larger(uint32_t left, uint32_t right)
{
    return left > right ? left : right;
}

/* The range of the pairs in a step's data. */
struct pairs {
    struct pair least, most;
    uint64_t count;
};

static void add_pair(struct pairs *pairs, struct pair pair)
{
    if (pairs->count++ == 0) {
        pairs->least = pair;
        pairs->most = pair;
    }
    pairs->least.from = smaller(pairs->least.from, pair.from);
    pairs->least.to = smaller(pairs->least.to, pair.to);
    pairs->most.from = larger(pairs->most.from, pair.from);
    pairs->most.to = larger(pairs->most.to, pair.to);
}

/* Writes "0>3", "0>0-3" or "0-3>1". False: the pairs have no such form, or there is no room;
 * nothing was written. */
static bool write_pairs(const struct pairs *pairs, char *ret_label, size_t size)
{
    uint64_t froms = (uint64_t)pairs->most.from - pairs->least.from + 1;
    uint64_t tos = (uint64_t)pairs->most.to - pairs->least.to + 1;
    if (pairs->count == 0 || froms * tos != pairs->count || (froms > 1 && tos > 1)) {
        return false;
    }
    char from[32];
    char to[32];
    char both[80];
    (void)snprintf(from, sizeof from, froms > 1 ? "%" PRIu32 "-%" PRIu32 : "%" PRIu32,
                   pairs->least.from, pairs->most.from);
    (void)snprintf(to, sizeof to, tos > 1 ? "%" PRIu32 "-%" PRIu32 : "%" PRIu32, pairs->least.to,
                   pairs->most.to);
    size_t length = (size_t)snprintf(both, sizeof both, "%s>%s", from, to);
    if (length >= size) {
        return false;
    }
    memcpy(ret_label, both, length + 1);
    return true;
}

static void label_pairs(const struct muster_drawing *drawing, const struct muster_step_data *data,
                        struct label *label)
{
    const struct muster_chunk_run *runs = &drawing->runs[data->first_run];
    struct pairs pairs = {0};
    for (size_t i = 0; i < data->run_count; i++) {
        for (uint64_t chunk = runs[i].first; chunk < runs[i].end; chunk++) {
            struct pair pair = pair_of(drawing, chunk);
            char name[32];
            (void)snprintf(name, sizeof name, "%s%" PRIu32 ">%" PRIu32, label->used > 0 ? "," : "",
                           pair.from, pair.to);
            add(label, name);
            add_pair(&pairs, pair);
        }
    }
    if (write_pairs(&pairs, label->text, label->size)) { /* replaces the list of all pairs */
        label->full = false;
    }
}

static void label_runs(const struct muster_drawing *drawing, const struct muster_step_data *data,
                       struct label *label)
{
    const struct muster_chunk_run *runs = &drawing->runs[data->first_run];
    bool spelled = drawing->chunks <= LETTERS;
    for (size_t i = 0; i < data->run_count;) {
        uint64_t first = runs[i].first;
        uint64_t end = runs[i].end;
        /* Adjacent runs that differ only in their members are one run here. */
        for (i++; i < data->run_count && runs[i].first == end; i++) {
            end = runs[i].end;
        }
        bool next = drawing->chunks <= LETTERS && is_spelled(drawing, first, end);
        add(label, label->used > 0 && !(spelled && next) ? "," : "");
        spelled = next;
        add_run(label, drawing, first, end);
    }
}

void muster_drawing_label(const struct muster_drawing *drawing, const struct muster_step_data *data,
                          char *ret_label, size_t size)
{
    struct label label = {.text = ret_label, .size = size};
    ret_label[0] = '\0';
    if (muster_collective_in_place_counts(drawing->shapes[0].collective)) {
        label_pairs(drawing, data, &label);
    } else {
        label_runs(drawing, data, &label);
    }
    if (label.full && size > 2) {
        size_t at = label.used + 3 > size ? size - 3 : label.used;
        memcpy(ret_label + at, "..", 3);
    }
}
