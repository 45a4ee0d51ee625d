/* The suite that every device passes, over the one that is named by its row in a registry:
 * device/NAME. */
#include "tests/support/devices.h"
#include "tests/support/group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/reduce/reduce.h"
#include "worker/base/status.h"
#include "worker/device/devices.h"

enum { COUNT = 70000, SHIFT = 100 };

static const struct test_device *device;

static bool is_host(void)
{
    return strcmp(device->name, "host") == 0;
}

/* Where `count` elements are, as the library is told. */
static struct muster_device_place place_of(void *data, struct muster_device_memory *memory)
{
    bool found = muster_device_find(data, memory);
    assert_int_equal(found, !is_host());
    if (found) {
        assert_string_equal(memory->device->name, device->name);
    }
    return (struct muster_device_place){.at = data, .memory = found ? memory : NULL};
}

static const struct muster_device *device_of(struct muster_device_place place)
{
    return muster_device_of_places(&place, 1);
}

static void its_memory_is_found_until_it_is_released(void **state)
{
    (void)state;
    struct muster_device_memory memory;
    int here = 0;
    char *data = device->allocate(COUNT);
    (void)place_of(data, &memory);
    (void)place_of(data + COUNT - 1, &memory);
    assert_false(muster_device_find(&here, &memory));
    assert_false(muster_device_find(NULL, &memory));
    device->release(data);
    assert_false(muster_device_find(data, &memory));
}

static void bytes_are_copied_to_it_within_it_and_back(void **state)
{
    (void)state;
    struct muster_device_memory memory;
    char *here = malloc(COUNT);
    char *back = calloc(1, COUNT);
    char *data = device->allocate(2 * COUNT);
    struct muster_device_place place = place_of(data, &memory);
    for (size_t i = 0; i < COUNT; i++) {
        here[i] = (char)(i * 7 + i / 251);
    }
    const struct muster_device *of = device_of(place);
    assert_string_equal(of->name, device->name);
    assert_int_equal(of->copy(place.memory, data, here, COUNT), MUSTER_OK);
    assert_int_equal(of->copy(place.memory, data + COUNT, data, COUNT - SHIFT), MUSTER_OK);
    assert_int_equal(of->copy(place.memory, back, data + COUNT, COUNT - SHIFT), MUSTER_OK);
    assert_int_equal(of->copy(place.memory, NULL, NULL, 0), MUSTER_OK);
    assert_int_equal(of->wait(place.memory), MUSTER_OK);
    assert_memory_equal(here, back, COUNT - SHIFT);
    assert_memory_equal(here, device->alias(data), COUNT);
    device->release(data);
    free(here);
    free(back);
}

/* target = left + right, where each of the three is on the device or on the host. */
static void elements_are_reduced_wherever_they_are(void **state)
{
    (void)state;
    const struct muster_reduction reduction = {
        .type = MUSTER_FLOAT32, .op = MUSTER_SUM, .prescale = 1, .postscale = 0.5};
    for (unsigned on_device = is_host() ? 7 : 1; on_device < 8; on_device++) {
        struct muster_device_memory memories[3];
        struct muster_device_place places[3];
        float *touched[3];
        for (int i = 0; i < 3; i++) {
            bool there = (on_device >> i & 1) != 0;
            void *data =
                there ? device->allocate(COUNT * sizeof(float)) : malloc(COUNT * sizeof(float));
            places[i] =
                there ? place_of(data, &memories[i]) : (struct muster_device_place){.at = data};
            touched[i] = there ? device->alias(data) : data;
            for (uint32_t k = 0; k < COUNT; k++) {
                touched[i][k] = (float)(k % 1000 + (uint32_t)i);
            }
        }
        const struct muster_combination combination = {.reduction = &reduction,
                                                       .target = places[0],
                                                       .left = places[1],
                                                       .right = places[2],
                                                       .count = COUNT};
        const struct muster_device *of = muster_device_of_places(places, 3);
        assert_int_equal(of->combine(&combination), MUSTER_OK);
        if ((on_device & 1) != 0) {
            assert_int_equal(of->finish(places[0].memory, &reduction, places[0].at, COUNT, 2),
                             MUSTER_OK);
        }
        for (uint32_t k = 0; k < COUNT; k++) {
            float sum = (float)(2 * (k % 1000) + 3);
            assert_float_equal(touched[0][k], (on_device & 1) != 0 ? sum / 2 : sum, 0);
        }
        for (int i = 0; i < 3; i++) {
            if ((on_device >> i & 1) != 0) {
                device->release(places[i].at);
            } else {
                free(places[i].at);
            }
        }
    }
}

static void every_collective_takes_its_memory(void **state)
{
    (void)state;
    static const uint64_t counts[] = {777, 0, 5000};
    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        struct sweep sweep = {.counts = counts,
                              .count_count = sizeof counts / sizeof counts[0],
                              .brief = true,
                              .place = ranks == 4 ? SWEEP_MEMORY : SWEEP_INPROC,
                              .memory = devices_memory(device)};
        sweep_even(ranks, ranks == 3 ? 2 : 1, &sweep);
        sweep.in_flight = true;
        sweep_even(ranks, ranks == 3 ? 2 : 1, &sweep);
    }
}

/* One buffer of a message, in memory of the host or of the device. */
struct message_buffer {
    bool on_device;
    char *data, *touched;
};

static struct message_buffer make_buffer(bool on_device, int content)
{
    struct message_buffer buffer = {.on_device = on_device};
    buffer.data = on_device ? device->allocate(COUNT) : malloc(COUNT);
    buffer.touched = on_device ? device->alias(buffer.data) : buffer.data;
    memset(buffer.touched, content, COUNT);
    return buffer;
}

static void free_buffer(const struct message_buffer *buffer)
{
    if (buffer->on_device) {
        device->release(buffer->data);
    } else {
        free(buffer->data);
    }
}

/* What is behind the message stays as it was. */
static bool holds(const struct message_buffer *buffer, size_t size, char content, char behind)
{
    bool right = true;
    for (size_t i = 0; i < COUNT && right; i++) {
        right = buffer->touched[i] == (i < size ? content : behind);
    }
    return right;
}

/* A message from rank 0 to rank 1, and one back: of each size, between all kinds of memory. */
static void send_and_receive(struct group_member *member, void *argument)
{
    static const size_t sizes[] = {0, 1, 100, COUNT - SHIFT};
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    (void)argument;
    for (uint32_t i = 0; i < 16; i++) {
        size_t size = sizes[i % 4];
        struct message_buffer out = make_buffer((i & 4) != 0, (int)(20 * member->rank + i));
        struct message_buffer in = make_buffer((i & 8) != 0, 77);
        muster_message message = {.count = 1};
        uint32_t suspect = 0;
        const struct muster_message_call send = {.direction = MUSTER_SEND,
                                                 .in = out.data,
                                                 .count = size,
                                                 .type = MUSTER_UINT8,
                                                 .peer = 1 - member->rank,
                                                 .tag = i,
                                                 .timeout_ms = GROUP_DEADLINE_MS};
        const struct muster_message_call receive = {.direction = MUSTER_RECEIVE,
                                                    .out = in.data,
                                                    .count = COUNT,
                                                    .type = MUSTER_UINT8,
                                                    .peer = 1 - member->rank,
                                                    .tag = i,
                                                    .timeout_ms = GROUP_DEADLINE_MS,
                                                    .ret_message = &message};
        bool sends_first = member->rank == 0;
        if (muster_context_message(context, sends_first ? &send : &receive, &suspect) !=
                MUSTER_OK ||
            muster_context_message(context, sends_first ? &receive : &send, &suspect) !=
                MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
        }
        if (message.count != size || message.tag != i ||
            !holds(&in, size, (char)(20 * (1 - member->rank) + i), 77)) {
            group_fail(member, "message %u has other bytes", i);
        }
        free_buffer(&out);
        free_buffer(&in);
    }
}

static void messages_take_its_memory(void **state)
{
    (void)state;
    for (enum group_transport transport = GROUP_TCP; transport <= GROUP_SHM; transport++) {
        struct group group;
        group_start_flat(&group, transport, 2);
        group_each(&group, send_and_receive, NULL);
        group_finish(&group);
    }
}

/* Whatever is not supported is said, and nothing is sent. */
static void messages_in_flight_take_memory_of_the_host(void **state)
{
    (void)state;
    struct group group;
    struct muster_started_call *call = NULL;
    struct message_buffer buffer = make_buffer(true, 1);
    group_start_flat(&group, GROUP_SHM, 2);
    const struct muster_message_call send = {.direction = MUSTER_SEND,
                                             .in = buffer.data,
                                             .count = 1,
                                             .type = MUSTER_UINT8,
                                             .peer = 0,
                                             .timeout_ms = GROUP_DEADLINE_MS};
    muster_status status =
        muster_context_start_message(group.members[0].contexts[MUSTER_GLOBAL], &send, &call);
    assert_int_equal(status, is_host() ? MUSTER_OK : MUSTER_INVALID);
    if (is_host()) {
        muster_started_call_detach(call);
    } else {
        assert_non_null(strstr(muster_last_error(), device->name));
    }
    group_finish(&group);
    free_buffer(&buffer);
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "host";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_memory_is_found_until_it_is_released),
        cmocka_unit_test(bytes_are_copied_to_it_within_it_and_back),
        cmocka_unit_test(elements_are_reduced_wherever_they_are),
        cmocka_unit_test(every_collective_takes_its_memory),
        cmocka_unit_test(messages_take_its_memory),
        cmocka_unit_test(messages_in_flight_take_memory_of_the_host),
    };
    device = devices_start(name);
    if (device == NULL) {
        (void)fprintf(stderr, "tests/support/devices.c has no row %s\n", name);
        return EXIT_FAILURE;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
