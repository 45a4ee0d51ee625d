/* Binary proto: known bytes, what is refused, and that JSON goes there and back. MUSTER_SEED
 * repeats a run. */
#include "elastic/messages/messages.h"
#include "rendezvous/coding/proto_parts.h"
#include "tests/support/schedules.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NOISES = 20000, NOISE_BYTES = 200, ROUNDS = 300 };

static uint64_t dice;

static uint32_t below(uint32_t bound)
{
    return test_random_below(&dice, bound);
}

/* Decodes the request of a method; the result as text, sorted, or the error. Owned. */
static char *decode(const char *method, const void *bytes, size_t size_bytes)
{
    json_t *json = NULL;
    muster_status status =
        muster_proto_decode(muster_proto_find(method)->request, bytes, size_bytes, &json);
    if (status != MUSTER_OK) {
        assert_int_equal(status, MUSTER_INVALID);
        return strdup(muster_last_error());
    }
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(json);
    return text;
}

static void expect_decoded(const char *method, const char *bytes, size_t size_bytes,
                           const char *wanted)
{
    char *text = decode(method, bytes, size_bytes);
    assert_string_equal(text, wanted);
    free(text);
}
#define DECODES(method, bytes, wanted) expect_decoded(method, bytes, sizeof(bytes) - 1, wanted)

/* The bytes are what protoc's encoders write for these values. */
static void known_bytes_are_read(void **state)
{
    (void)state;
    DECODES("Resize", "", "{}");
    DECODES("Resize", "\x0a\x01j\x10\x96\x01", "{\"job\":\"j\",\"targetSize\":150}");
    DECODES("Peers", "\x22\x03\x01\x02\x7f\x20\x05", "{\"ranks\":[1,2,127,5]}");
    DECODES("Add", "\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "{\"amount\":\"-1\"}");
    DECODES("Add", "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "{\"generation\":\"18446744073709551615\"}");
    DECODES("Put", "\x22\x03\x00\xff\x10", "{\"value\":\"AP8Q\"}");
    DECODES("Leave", "\x20\x02", "{\"reason\":\"LEAVE_REASON_PLANNED\"}");
    DECODES("Watch", "\x20\x01\x28\x00", "{\"leaveKnown\":false,\"pendingKnown\":true}");
    DECODES("Resize", "\x10\x01\x10\x02", "{\"targetSize\":2}"); /* the last counts */
}

static void unknown_fields_are_skipped(void **state)
{
    (void)state;
    DECODES("Resize", "\xf8\x07\x05\x10\x02", "{\"targetSize\":2}");
    DECODES("Resize", "\xf9\x07\x01\x02\x03\x04\x05\x06\x07\x08\x10\x02", "{\"targetSize\":2}");
    DECODES("Resize", "\xfd\x07\x01\x02\x03\x04\x10\x02", "{\"targetSize\":2}");
    DECODES("Resize", "\xfa\x07\x02zz\x10\x02", "{\"targetSize\":2}");
    DECODES("Resize", "\xfb\x07\x0b\x10\x09\x0c\xfc\x07\x10\x02", "{\"targetSize\":2}");
}

static void wrong_input_is_refused_with_the_fields_name(void **state)
{
    (void)state;
    DECODES("Resize", "\x08\x01", "job: has wire type 0, not 2");
    DECODES("Resize", "\x12\x01\x01", "targetSize: has wire type 2, not 0");
    DECODES("Resize", "\x10", "targetSize: the message is cut off in it");
    DECODES("Resize", "\x10\x80", "targetSize: the message is cut off in it");
    DECODES("Resize", "\x0a\x05job", "job: the message is cut off in it");
    DECODES("Resize", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "job: the message is cut off in it");
    DECODES("Resize", "\x0a\x02\xc3\x28", "job: not UTF-8");
    DECODES("Resize", "\x0a\x02\x00\x28", "job: has a NUL character");
    DECODES("Resize", "\x10\x80\x80\x80\x80\x10", "targetSize: 4294967296 is out of range");
    DECODES("Resize", "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            "targetSize: a number of more than 64 bits");
    DECODES("Leave", "\x20\x09", "reason: 9 is out of range");
    DECODES("Resize", "\x00", "ResizeRequest: no field begins with 0");
    DECODES("Resize", "\x0f", "ResizeRequest: no field begins with 15");
    DECODES("Resize", "\xfd\x07\x01", "field 127: the message is cut off in it");
    DECODES("Resize", "\xfb\x07\x10", "field 127: the message is cut off in it");
    DECODES("Resize", "\xfc\x07", "field 127: a group ends that has not begun");
    DECODES("Resize",
            "\xfb\x07\xfb\x07\xfb\x07\xfb\x07\xfb\x07\xfb\x07\xfb\x07\xfb\x07\xfb\x07"
            "\xfb\x07\xfb\x07\xfb\x07\xfb\x07\xfb\x07\xfb\x07\xfb\x07\xfb\x07",
            "field 127: more than 16 nested groups");
}

static void too_many_elements_are_refused(void **state)
{
    (void)state;
    size_t size_bytes = MUSTER_PROTO_ELEMENTS_MAX + 1 + 4;
    char *bytes = calloc(1, size_bytes);
    assert_non_null(bytes);
    static const char head[] = {0x22, (char)0x81, (char)0x80, 0x04};
    memcpy(bytes, head, sizeof head);
    expect_decoded("Peers", bytes, size_bytes, "ranks: more than 65536 elements");
    free(bytes);
}

/* Any bytes become JSON that the service's parser accepts, or an error that names something. */
static void noise_does_no_harm(void **state)
{
    (void)state;
    unsigned accepted = 0;
    for (int i = 0; i < NOISES; i++) {
        const struct muster_proto_method *method =
            &muster_proto_methods[below((uint32_t)muster_proto_method_count)];
        uint8_t *bytes = malloc(NOISE_BYTES); /* of its own size, for the address sanitizer */
        assert_non_null(bytes);
        size_t size_bytes = below(below(4) == 0 ? NOISE_BYTES : 12);
        for (size_t j = 0; j < size_bytes; j++) {
            bytes[j] = (uint8_t)(below(2) == 0 ? below(256) : below(0x30));
        }
        bytes = realloc(bytes, size_bytes + (size_bytes == 0));
        json_t *json = NULL;
        if (muster_proto_decode(below(2) == 0 ? method->request : method->response, bytes,
                                size_bytes, &json) == MUSTER_OK) {
            char *text = json_dumps(json, JSON_COMPACT);
            json_t *parsed = NULL;
            assert_int_equal(muster_json_parse(text, strlen(text), &parsed), MUSTER_OK);
            json_decref(parsed);
            free(text);
            json_decref(json);
            accepted++;
        } else {
            assert_non_null(strstr(muster_last_error(), ": "));
        }
        free(bytes);
    }
    assert_true(accepted > NOISES / 50);
}

/* There and back ------------------------------------------------------------------------------- */

static json_t *any_message(const struct muster_proto_message *message);

static json_t *any_decimal(const char *format, uint64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof text, format, value);
    return json_string(text);
}

/* Never 0 or empty: those fields are left out, and would not come back. */
static json_t *any_value(const struct muster_proto_field *field)
{
    static const char *const texts[] = {"a", "\xc3\xa9\xe2\x82\xac", "a longer text \\ \" \n"};
    uint64_t wide = below(2) == 0 ? 1 + below(1000) : test_random(&dice) | 1;
    switch (field->type) {
    case MUSTER_PROTO_BOOL:
        return json_true();
    case MUSTER_PROTO_INT32:
        return json_integer((int32_t)wide);
    case MUSTER_PROTO_UINT32:
        return json_integer((uint32_t)wide);
    case MUSTER_PROTO_INT64:
        return any_decimal("%" PRId64, wide);
    case MUSTER_PROTO_UINT64:
        return any_decimal("%" PRIu64, wide);
    case MUSTER_PROTO_ENUM:
        return json_string(field->words->values[1 + below((uint32_t)field->words->count - 1)]);
    case MUSTER_PROTO_STRING:
        return json_string(texts[below(3)]);
    case MUSTER_PROTO_BYTES:
        return json_string("AP8Q");
    default:
        return any_message(field->message);
    }
}

static json_t *any_field(const struct muster_proto_field *field)
{
    if (field->label == MUSTER_PROTO_ONE) {
        return any_value(field);
    }
    json_t *several = field->label == MUSTER_PROTO_MAP ? json_object() : json_array();
    for (uint32_t i = 0, count = 1 + below(3); i < count; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k%u", i);
        int failed = field->label == MUSTER_PROTO_MAP
                         ? json_object_set_new(several, key, any_value(field))
                         : json_array_append_new(several, any_value(field));
        assert_int_equal(failed, 0);
    }
    return several;
}

static json_t *any_message(const struct muster_proto_message *message)
{
    json_t *json = json_object();
    for (size_t i = 0; i < message->field_count; i++) {
        if (below(3) > 0) {
            assert_int_equal(
                json_object_set_new(json, message->fields[i].name, any_field(&message->fields[i])),
                0);
        }
    }
    return json;
}

static void go_there_and_back(const struct muster_proto_message *message)
{
    json_t *json = any_message(message);
    json_t *back = NULL;
    char *bytes = NULL;
    size_t size_bytes = 0;
    assert_int_equal(muster_proto_encode(message, json, &bytes, &size_bytes), MUSTER_OK);
    assert_int_equal(muster_proto_decode(message, bytes, size_bytes, &back), MUSTER_OK);
    if (json_equal(json, back) != 1) {
        fail_msg("%s: not the same as before", message->name);
    }
    /* Cut anywhere it is another message or an error, never a crash. */
    json_t *cut = NULL;
    if (size_bytes > 0 &&
        muster_proto_decode(message, bytes, below((uint32_t)size_bytes), &cut) == MUSTER_OK) {
        json_decref(cut);
    }
    free(bytes);
    json_decref(json);
    json_decref(back);
}

static void every_message_goes_there_and_back(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < muster_proto_method_count; i++) {
            go_there_and_back(muster_proto_methods[i].request);
            go_there_and_back(muster_proto_methods[i].response);
        }
    }
}

/* 0 and empty fields need no bytes, but a message that is there does. */
static void empty_fields_are_left_out(void **state)
{
    (void)state;
    json_t *json = json_pack("{s{siss}}", "waiting", "members", 0, "x", "y");
    char *bytes = NULL;
    size_t size_bytes = 0;
    const struct muster_proto_message *message = muster_proto_find("Join")->response;
    assert_int_equal(muster_proto_encode(message, json, &bytes, &size_bytes), MUSTER_FATAL);
    assert_non_null(strstr(muster_last_error(), "waiting.x: the contract's Waiting has no such"));
    assert_int_equal(json_object_del(json_object_get(json, "waiting"), "x"), 0);
    assert_int_equal(muster_proto_encode(message, json, &bytes, &size_bytes), MUSTER_OK);
    assert_int_equal(size_bytes, 2);
    assert_memory_equal(bytes, "\x0a\x00", 2);
    free(bytes);
    json_decref(json);
}

static void json_of_another_type_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "{\"rank\": 1}",
        "{\"formed\": {\"rank\": \"x\"}}",
        "{\"formed\": {\"generation\": \"12x\"}}",
        "{\"formed\": {\"peers\": {}}}",
        "{\"formed\": {\"peers\": [1]}}",
        "{\"formed\": {\"linkToken\": 1}}",
        "{\"formed\": []}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        json_t *json = json_loads(wrong[i], 0, NULL);
        char *bytes = NULL;
        size_t size_bytes = 0;
        assert_non_null(json);
        assert_int_equal(
            muster_proto_encode(muster_proto_find("Join")->response, json, &bytes, &size_bytes),
            MUSTER_FATAL);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_bytes_are_read),
        cmocka_unit_test(unknown_fields_are_skipped),
        cmocka_unit_test(wrong_input_is_refused_with_the_fields_name),
        cmocka_unit_test(too_many_elements_are_refused),
        cmocka_unit_test(noise_does_no_harm),
        cmocka_unit_test(every_message_goes_there_and_back),
        cmocka_unit_test(empty_fields_are_left_out),
        cmocka_unit_test(json_of_another_type_is_refused),
    };
    dice = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
