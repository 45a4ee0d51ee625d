/* The matching of point-to-point messages, against a plain model: all short histories, and long
 * ones drawn from a seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/schedules.h"
#include "worker/context/message_matching.h"

enum { SOURCES = 2, RECORDS_MAX = 400, NONE = -1 };

/* The model: everything that has happened, in arrays, searched from the start each time. */
struct model {
    struct {
        uint32_t source, tag;
        uint64_t number;
        bool in_order; /* those before it have come */
        int at;        /* when that was so */
        int receive;   /* that got it; or NONE */
    } messages[RECORDS_MAX];
    int message_count;
    struct {
        uint32_t source, tag;
        int message; /* that it got; or NONE */
        bool withdrawn;
    } receives[RECORDS_MAX];
    int receive_count;
    int clock;
};

struct message {
    struct muster_arrived_message record; /* its first member */
    int index;
};

struct receive {
    struct muster_waiting_receive record; /* its first member */
    int index;
    int message; /* as the matching says */
};

struct world {
    struct model model;
    struct muster_message_matching matching;
    struct message messages[RECORDS_MAX];
    struct receive receives[RECORDS_MAX];
};

static bool model_fits(uint32_t source, uint32_t tag, uint32_t from, uint32_t with)
{
    return (source == from || source == MUSTER_ANY_SOURCE) &&
           (tag == with || tag == MUSTER_ANY_TAG);
}

/* Gives messages that are in order, from the one that has been so for the longest time on, to the
 * first receives that fit. */
static void model_settle(struct model *model)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < model->message_count; i++) {
            uint64_t before = 0;
            for (int k = 0; k < model->message_count; k++) {
                before += model->messages[k].source == model->messages[i].source &&
                          model->messages[k].number < model->messages[i].number &&
                          model->messages[k].in_order;
            }
            if (!model->messages[i].in_order && before == model->messages[i].number) {
                model->messages[i].in_order = true;
                model->messages[i].at = model->clock++;
                moved = true;
                for (int r = 0; r < model->receive_count; r++) {
                    if (model->receives[r].message == NONE && !model->receives[r].withdrawn &&
                        model_fits(model->receives[r].source, model->receives[r].tag,
                                   model->messages[i].source, model->messages[i].tag)) {
                        model->receives[r].message = i;
                        model->messages[i].receive = r;
                        break;
                    }
                }
            }
        }
    }
}

static int model_find(const struct model *model, uint32_t source, uint32_t tag)
{
    int found = NONE;
    for (int i = 0; i < model->message_count; i++) {
        if (model->messages[i].in_order && model->messages[i].receive == NONE &&
            model_fits(source, tag, model->messages[i].source, model->messages[i].tag) &&
            (found == NONE || model->messages[i].at < model->messages[found].at)) {
            found = i;
        }
    }
    return found;
}

static void begin(struct world *world)
{
    memset(world, 0, sizeof *world);
    assert_int_equal(muster_message_matching_init(&world->matching, SOURCES), MUSTER_OK);
}

static void come_in(struct world *world, uint32_t source, uint64_t number, uint32_t tag)
{
    struct model *model = &world->model;
    bool is_new = true;
    for (int i = 0; i < model->message_count; i++) {
        is_new =
            is_new && (model->messages[i].source != source || model->messages[i].number != number);
    }
    assert_int_equal(muster_message_matching_is_new(&world->matching, source, number), is_new);
    if (!is_new) {
        return;
    }
    int index = model->message_count++;
    model->messages[index].source = source;
    model->messages[index].number = number;
    model->messages[index].tag = tag;
    model->messages[index].receive = NONE;
    model_settle(model);
    world->messages[index] = (struct message){
        .record = {.source = source, .tag = tag, .number = number}, .index = index};
    muster_message_matching_add(&world->matching, &world->messages[index].record);
    struct muster_message_match match;
    while (muster_message_matching_deliver(&world->matching, source, &match)) {
        ((struct receive *)match.receive)->message = ((struct message *)match.message)->index;
    }
}

static void post(struct world *world, uint32_t source, uint32_t tag)
{
    struct model *model = &world->model;
    int index = model->receive_count++;
    int found = model_find(model, source, tag);
    model->receives[index].source = source;
    model->receives[index].tag = tag;
    model->receives[index].message = found;
    struct muster_arrived_message *peeked =
        muster_message_matching_find(&world->matching, source, tag);
    world->receives[index] =
        (struct receive){.record = {.source = source, .tag = tag}, .index = index, .message = NONE};
    struct muster_arrived_message *got =
        muster_message_matching_post(&world->matching, &world->receives[index].record);
    assert_ptr_equal(peeked, got);
    if (got != NULL) {
        world->receives[index].message = ((struct message *)got)->index;
    }
    if (found != NONE) {
        model->messages[found].receive = index;
    }
}

/* As a receive that does not wait. */
static void take(struct world *world, uint32_t source, uint32_t tag)
{
    struct model *model = &world->model;
    int found = model_find(model, source, tag);
    struct muster_arrived_message *got =
        muster_message_matching_take(&world->matching, source, tag);
    assert_int_equal(got != NULL ? ((struct message *)got)->index : NONE, found);
    if (found == NONE) {
        return;
    }
    int index = model->receive_count++;
    model->receives[index].source = source;
    model->receives[index].tag = tag;
    model->receives[index].message = found;
    model->messages[found].receive = index;
    world->receives[index] = (struct receive){.index = index, .message = found};
}

/* Whether the next message of the source may go to a receive past the records: nothing waits for
 * anything, and nothing that came in is ahead of it. */
static bool model_awaits_next(const struct model *model, uint32_t source, uint32_t tag)
{
    bool free = model_find(model, source, tag) == NONE;
    for (int i = 0; i < model->receive_count; i++) {
        free = free && (model->receives[i].message != NONE || model->receives[i].withdrawn);
    }
    for (int i = 0; i < model->message_count; i++) {
        free = free && (model->messages[i].source != source || model->messages[i].in_order);
    }
    return free;
}

/* A receive that gets the next message of a source as soon as it comes in. */
static void pass(struct world *world, uint32_t source, uint32_t tag)
{
    struct model *model = &world->model;
    bool awaits = muster_message_matching_awaits_next(&world->matching, source, tag);
    assert_int_equal(awaits, model_awaits_next(model, source, tag));
    if (!awaits) {
        return;
    }
    int index = model->receive_count++;
    model->receives[index].source = source;
    model->receives[index].tag = tag;
    model->receives[index].message = NONE;
    int message = model->message_count++;
    model->messages[message].source = source;
    model->messages[message].number = world->matching.sources[source].next;
    model->messages[message].tag = tag == MUSTER_ANY_TAG ? 1 : tag;
    model->messages[message].receive = NONE;
    model_settle(model);
    muster_message_matching_pass_next(&world->matching, source);
    world->receives[index] = (struct receive){.index = index, .message = message};
}

static void withdraw(struct world *world, int index)
{
    if (world->model.receives[index].message == NONE && !world->model.receives[index].withdrawn) {
        world->model.receives[index].withdrawn = true;
        muster_message_matching_withdraw(&world->matching, &world->receives[index].record);
    }
}

static void compare(const struct world *world)
{
    for (int i = 0; i < world->model.receive_count; i++) {
        assert_int_equal(world->receives[i].message, world->model.receives[i].message);
    }
}

/* What is left is exactly what the model has left, and nothing is lost. */
static void end(struct world *world)
{
    int left = 0;
    int waiting = 0;
    for (int i = 0; i < world->model.message_count; i++) {
        left += world->model.messages[i].receive == NONE;
    }
    for (int i = 0; i < world->model.receive_count; i++) {
        waiting += world->model.receives[i].message == NONE && !world->model.receives[i].withdrawn;
    }
    for (uint32_t source = 0; source <= SOURCES; source++) {
        uint32_t named = source < SOURCES ? source : MUSTER_ANY_SOURCE;
        while (muster_message_matching_take_waiting(&world->matching, named) != NULL) {
            waiting--;
        }
    }
    while (muster_message_matching_take_any(&world->matching) != NULL) {
        left--;
    }
    assert_int_equal(left, 0);
    assert_int_equal(waiting, 0);
    muster_message_matching_finish(&world->matching);
}

/* Events: messages 0 to 2 of source 0 and message 0 of source 1, each with tag 0 or 1, and receives
 * with each pattern; receives from source 0 that get its next message at once; and a take of any
 * message. All histories of this length. */
enum { EVENTS = 8 + 9 + 2 + 1, HISTORY = 5 };

static void do_event(struct world *world, unsigned event)
{
    static const uint32_t sources[] = {0, 1, MUSTER_ANY_SOURCE};
    static const uint32_t tags[] = {0, 1, MUSTER_ANY_TAG};
    if (event < 6) {
        come_in(world, 0, event / 2, event % 2);
    } else if (event < 8) {
        come_in(world, 1, 0, event % 2);
    } else if (event < 17) {
        post(world, sources[(event - 8) / 3], tags[(event - 8) % 3]);
    } else if (event < 19) {
        pass(world, 0, tags[event - 17]);
    } else {
        take(world, MUSTER_ANY_SOURCE, MUSTER_ANY_TAG);
    }
}

static void all_short_histories_match_as_the_model_does(void **state)
{
    (void)state;
    struct world *world = malloc(sizeof *world);
    unsigned long histories = 1;
    for (int i = 0; i < HISTORY; i++) {
        histories *= EVENTS;
    }
    for (unsigned long history = 0; history < histories; history++) {
        unsigned long rest = history;
        world->model.message_count = 0;
        world->model.receive_count = 0;
        world->model.clock = 0;
        memset(world->model.messages, 0, HISTORY * sizeof world->model.messages[0]);
        memset(world->model.receives, 0, HISTORY * sizeof world->model.receives[0]);
        assert_int_equal(muster_message_matching_init(&world->matching, SOURCES), MUSTER_OK);
        for (int i = 0; i < HISTORY; i++) {
            do_event(world, (unsigned)(rest % EVENTS));
            rest /= EVENTS;
        }
        compare(world);
        end(world);
    }
    free(world);
}

static void long_histories_match_as_the_model_does(void **state)
{
    uint64_t seed = test_seed();
    struct world *world = malloc(sizeof *world);
    (void)state;
    for (int round = 0; round < 300; round++) {
        begin(world);
        uint32_t tags = 1 + test_random_below(&seed, 3);
        uint64_t window = 1 + test_random(&seed) % 8;
        for (int i = 0; i < RECORDS_MAX / 2; i++) {
            uint32_t tag = test_random_below(&seed, tags + 1);
            uint32_t source = test_random_below(&seed, SOURCES + 1);
            switch (test_random(&seed) % 7) {
            case 0:
            case 1:
                source = source % SOURCES;
                come_in(world, source,
                        world->matching.sources[source].next + test_random(&seed) % window,
                        tag % tags);
                break;
            case 2:
            case 3:
                post(world, source == SOURCES ? MUSTER_ANY_SOURCE : source,
                     tag == tags ? MUSTER_ANY_TAG : tag);
                break;
            case 4:
                pass(world, source % SOURCES, tag == tags ? MUSTER_ANY_TAG : tag);
                break;
            case 5:
                take(world, source == SOURCES ? MUSTER_ANY_SOURCE : source,
                     tag == tags ? MUSTER_ANY_TAG : tag);
                break;
            default:
                if (world->model.receive_count > 0) {
                    withdraw(world,
                             (int)(test_random(&seed) % (uint64_t)world->model.receive_count));
                }
            }
            compare(world);
        }
        end(world);
    }
    free(world);
}

static void a_message_that_comes_too_early_waits_for_those_before_it(void **state)
{
    struct world *world = malloc(sizeof *world);
    (void)state;
    begin(world);
    post(world, 0, MUSTER_ANY_TAG);
    come_in(world, 0, 2, 5);
    come_in(world, 0, 1, 5);
    assert_int_equal(world->receives[0].message, NONE);
    assert_null(muster_message_matching_find(&world->matching, 0, 5));
    come_in(world, 0, 0, 7);
    assert_int_equal(world->receives[0].message, 2); /* the third that came in, number 0 */
    post(world, MUSTER_ANY_SOURCE, 5);
    assert_int_equal(world->receives[1].message, 1); /* number 1 */
    come_in(world, 0, 1, 5);                         /* again: it is not new */
    end(world);
    free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_short_histories_match_as_the_model_does),
        cmocka_unit_test(long_histories_match_as_the_model_does),
        cmocka_unit_test(a_message_that_comes_too_early_waits_for_those_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
