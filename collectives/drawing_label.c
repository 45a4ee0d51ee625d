/* Names of chunks. */
#include "collectives/drawing.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    LETTERS = 52,    /* names of one letter */
    SPELLED_MAX = 4, /* letters of a run; longer ones are a-h */
};

/* A label that is being written. */
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

/* a..z, A..Z; where there are more, all are numbers. */
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

/* Whose it is and for whom, where every pair of ranks has something of its own. */
static void add_pair(struct label *label, const struct muster_drawing *drawing, uint64_t chunk)
{
    const struct muster_shape *shapes = drawing->shapes;
    uint32_t from = (uint32_t)(drawing->cuts[chunk] / drawing->stride);
    uint64_t origin = drawing->cuts[chunk] % drawing->stride;
    uint32_t part = 0;
    struct muster_span whole = {.count = shapes[from].count};
    bool parts = shapes[0].collective == MUSTER_PAIRWISE_EXCHANGE;
    for (; part < drawing->ranks - 1; part++) {
        struct muster_span span = parts ? muster_span_part(whole, drawing->ranks, part)
                                        : muster_shape_input_block(&shapes[from], part);
        if (origin < span.offset + span.count) {
            break;
        }
    }
    char name[32];
    (void)snprintf(name, sizeof name, "%" PRIu32 ">%" PRIu32, from,
                   parts ? muster_shape_partner(&shapes[from], part) : part);
    add(label, name);
}

static void add_pairs(struct label *label, const struct muster_drawing *drawing, uint64_t first,
                      uint64_t end)
{
    for (uint64_t chunk = first; chunk < end; chunk++) {
        add(label, label->used > 0 ? "," : "");
        add_pair(label, drawing, chunk);
    }
}

void muster_drawing_label(const struct muster_drawing *drawing, const struct muster_cargo *cargo,
                          char *ret_label, size_t size)
{
    struct label label = {.text = ret_label, .size = size};
    const struct muster_chunk_run *runs = &drawing->runs[cargo->first_run];
    bool pairs = muster_collective_in_place_counts(drawing->shapes[0].collective);
    bool spelled = drawing->chunks <= LETTERS;
    ret_label[0] = '\0';
    for (size_t i = 0; i < cargo->run_count;) {
        uint64_t first = runs[i].first;
        uint64_t end = runs[i].end;
        /* Neighbours that differ only in who is in them are one run here. */
        for (i++; i < cargo->run_count && runs[i].first == end; i++) {
            end = runs[i].end;
        }
        if (pairs) {
            add_pairs(&label, drawing, first, end);
            continue;
        }
        bool next = drawing->chunks <= LETTERS && is_spelled(drawing, first, end);
        add(&label, label.used > 0 && !(spelled && next) ? "," : "");
        spelled = next;
        add_run(&label, drawing, first, end);
    }
    if (label.full && size > 2) {
        size_t at = label.used + 3 > size ? size - 3 : label.used;
        memcpy(ret_label + at, "..", 3);
    }
}
