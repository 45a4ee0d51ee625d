/* The tables of the requests and responses about values. */
#include "elastic/messages/messages_parts.h"

static const struct muster_field request_fields[] = {
    TEXT_FIELD(muster_value_request, "job", job, JOB),
    FIELD(muster_value_request, "generation", UINT64, generation),
    TEXT_FIELD(muster_value_request, "key", key, ANY),
    FIELD(muster_value_request, "timeoutMs", UINT32, timeout_ms, .max = MUSTER_WAIT_MAX_MS),
    FIELD(muster_value_request, "keys", OWNED_TEXTS, keys, .max = MUSTER_WAIT_KEYS_MAX,
          .rule = MUSTER_TEXT_REQUIRED, .size_bytes = MUSTER_KEY_MAX_BYTES + 1,
          .count_offset = offsetof(struct muster_value_request, key_count)),
    FIELD(muster_value_request, "value", BYTES, value, .size_bytes = MUSTER_VALUE_MAX_BYTES,
          .count_offset = offsetof(struct muster_value_request, value_size)),
    FIELD(muster_value_request, "expected", BYTES, expected, .size_bytes = MUSTER_VALUE_MAX_BYTES,
          .count_offset = offsetof(struct muster_value_request, expected_size)),
    FIELD(muster_value_request, "amount", INT64, amount),
    TEXT_FIELD(muster_value_request, "requestId", request_id, UUID_OR_NONE),
};
static const struct muster_service_message request =
    MESSAGE(muster_value_request, request_fields, .sparse = true);

json_t *muster_value_request_encode(const struct muster_value_request *value)
{
    return muster_message_encode(&request, value);
}

/* Only a Wait may name its keys in a list. */
muster_status muster_value_request_decode(const json_t *json,
                                          struct muster_value_request *ret_value)
{
    struct muster_value_request value;
    TRY(muster_message_decode(&request, json, &value));
    if (value.key[0] == '\0' && value.key_count == 0) {
        muster_value_request_finish(&value);
        return muster_error_set(MUSTER_INVALID, "key: missing or empty");
    }
    *ret_value = value;
    return MUSTER_OK;
}

void muster_value_request_finish(struct muster_value_request *value)
{
    muster_message_finish(&request, value);
}

static const struct muster_field response_fields[] = {
    FIELD(muster_value_response, "value", BYTES, value, .size_bytes = MUSTER_VALUE_MAX_BYTES,
          .count_offset = offsetof(struct muster_value_response, value_size)),
};
static const struct muster_service_message response =
    MESSAGE(muster_value_response, response_fields);
DEFINE_MESSAGE(value_response, muster_value_response, response)

void muster_value_response_finish(struct muster_value_response *value)
{
    muster_message_finish(&response, value);
}

static const struct muster_field add_fields[] = {
    FIELD(muster_add_response, "value", INT64, value),
};
static const struct muster_service_message add_response = MESSAGE(muster_add_response, add_fields);
DEFINE_MESSAGE(add_response, muster_add_response, add_response)

static const struct muster_field swap_fields[] = {
    FIELD(muster_swap_response, "swapped", BOOL, swapped),
    FIELD(muster_swap_response, "value", BYTES, value, .size_bytes = MUSTER_VALUE_MAX_BYTES,
          .count_offset = offsetof(struct muster_swap_response, value_size)),
};
static const struct muster_service_message swap_response =
    MESSAGE(muster_swap_response, swap_fields);
DEFINE_MESSAGE(swap_response, muster_swap_response, swap_response)

void muster_swap_response_finish(struct muster_swap_response *value)
{
    muster_message_finish(&swap_response, value);
}

static const struct muster_field delete_fields[] = {
    FIELD(muster_delete_response, "deleted", BOOL, deleted),
};
static const struct muster_service_message delete_response =
    MESSAGE(muster_delete_response, delete_fields);
DEFINE_MESSAGE(delete_response, muster_delete_response, delete_response)

static const struct muster_field count_request_fields[] = {
    TEXT_FIELD(muster_count_request, "job", job, JOB),
    FIELD(muster_count_request, "generation", UINT64, generation),
    TEXT_FIELD(muster_count_request, "prefix", prefix, ANY),
};
static const struct muster_service_message count_request =
    MESSAGE(muster_count_request, count_request_fields, .sparse = true);
DEFINE_MESSAGE(count_request, muster_count_request, count_request)

static const struct muster_field count_fields[] = {
    FIELD(muster_count_response, "count", UINT32, count),
};
static const struct muster_service_message count_response =
    MESSAGE(muster_count_response, count_fields);
DEFINE_MESSAGE(count_response, muster_count_response, count_response)
