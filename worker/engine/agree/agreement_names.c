/* The names that an agreement knows, with their numbers and descriptions; eviction; what ranks
 * describe to each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/array.h"
#include "worker/base/bytes.h"
#include "worker/engine/agree/agreement_parts.h"

enum { NUMBERS_FIRST = 256, BLOB_FIRST = 4096 };

/* Names ---------------------------------------------------------------------------------------- */

struct muster_agree_tensor *muster_agreement_name_tensor(struct muster_agreement *agreement,
                                                         const char *name)
{
    struct muster_agree_tensor *tensor = NULL;
    size_t length = strlen(name);
    HASH_FIND(by_name, agreement->names, name, length, tensor);
    if (tensor != NULL) {
        return tensor;
    }
    tensor = calloc(1, sizeof *tensor);
    char *copy = strdup(name);
    if (tensor == NULL || copy == NULL) {
        free(tensor);
        free(copy);
        return NULL;
    }
    tensor->name = copy;
    tensor->number = MUSTER_AGREEMENT_NONE;
    tensor->operation = MUSTER_AGREEMENT_NONE;
    HASH_ADD_KEYPTR(by_name, agreement->names, tensor->name, length, tensor);
    return tensor;
}

void muster_agreement_forget_tensor(struct muster_agreement *agreement,
                                    struct muster_agree_tensor *tensor)
{
    HASH_DELETE(by_name, agreement->names, tensor);
    free(tensor->alternatives);
    free(tensor->name);
    free(tensor);
}

/* Arrays by number grow together. */
static bool grow(struct muster_agreement *agreement, uint32_t room)
{
    size_t words = room / 64;
    size_t old_words = agreement->number_room / 64;
    /* NOLINTBEGIN(bugprone-sizeof-expression): the elements are pointers */
    if (!muster_array_resize(&agreement->numbered, room, sizeof *agreement->numbered) ||
        !muster_array_resize(&agreement->descriptions, room, sizeof *agreement->descriptions) ||
        !muster_array_resize(&agreement->common, room, sizeof *agreement->common) ||
        !muster_array_resize(&agreement->ready, words, sizeof *agreement->ready) ||
        !muster_array_resize(&agreement->words, words + 1, sizeof *agreement->words)) {
        return false;
    }
    /* NOLINTEND(bugprone-sizeof-expression) */
    memset(agreement->ready + old_words, 0, (words - old_words) * sizeof *agreement->ready);
    agreement->number_room = room;
    return true;
}

/* The number of the tensor that was agreed on least recently, is not in the agreed order, and has
 * not got its number just now; MUSTER_AGREEMENT_NONE: there is none. */
static uint32_t find_oldest(const struct muster_agreement *agreement)
{
    uint32_t oldest = MUSTER_AGREEMENT_NONE;
    for (uint32_t i = 0; i < agreement->number_count; i++) {
        const struct muster_agree_tensor *tensor = agreement->numbered[i];
        if (tensor == NULL) {
            return i;
        }
        if (tensor->operation == MUSTER_AGREEMENT_NONE &&
            tensor->numbered != agreement->counts.describes &&
            (oldest == MUSTER_AGREEMENT_NONE ||
             tensor->last_use < agreement->numbered[oldest]->last_use)) {
            oldest = i;
        }
    }
    return oldest;
}

/* A tensor that is pending here when its number goes is described once more. */
static void evict(struct muster_agreement *agreement, uint32_t number)
{
    struct muster_agree_tensor *tensor = agreement->numbered[number];
    if (tensor == NULL) {
        return;
    }
    agreement->numbered[number] = NULL;
    agreement->ready[number / 64] &= ~(UINT64_C(1) << (number % 64));
    tensor->number = MUSTER_AGREEMENT_NONE;
    free(tensor->alternatives);
    tensor->alternatives = NULL;
    tensor->alternative_count = 0;
    tensor->last_step = 0;
    tensor->pass = 0;
    if (!tensor->pending) {
        muster_agreement_forget_tensor(agreement, tensor);
    } else {
        muster_agreement_place(agreement, tensor);
    }
}

/* Replicated: all ranks number the same tensors in the same order. Where there is no room for a
 * number, the tensor stays without one, and is described again. */
static muster_status give_number(struct muster_agreement *agreement,
                                 struct muster_agree_tensor *tensor)
{
    uint32_t number = agreement->number_count;
    if (number >= agreement->options.names_max) {
        number = find_oldest(agreement);
        if (number == MUSTER_AGREEMENT_NONE) {
            muster_agreement_drop_order(agreement);
            return MUSTER_OK;
        }
        evict(agreement, number);
    } else if (number >= agreement->number_room) {
        uint32_t room = number == 0 ? NUMBERS_FIRST : 2 * number;
        if (!grow(agreement, room)) {
            return muster_error_set(MUSTER_FATAL, "no memory for %u names of tensors", room);
        }
    }
    if (number == agreement->number_count) {
        agreement->number_count++;
    }
    agreement->numbered[number] = tensor;
    tensor->number = number;
    tensor->numbered = agreement->counts.describes;
    tensor->last_use = agreement->uses;
    return MUSTER_OK;
}

/* Describing ----------------------------------------------------------------------------------- */

static bool add_blob_room(struct muster_agreement *agreement, size_t size)
{
    if (size <= agreement->blob_room) {
        return true;
    }
    size_t room = agreement->blob_room == 0 ? BLOB_FIRST : 2 * agreement->blob_room;
    unsigned char *blob = realloc(agreement->blob, room);
    if (blob == NULL) {
        return false;
    }
    agreement->blob = blob;
    agreement->blob_room = room;
    return true;
}

muster_status muster_agreement_describe(struct muster_agreement *agreement,
                                        const unsigned char **ret_bytes, size_t *ret_size)
{
    struct muster_agree_tensor *tensor = NULL;
    size_t size = 0;
    TAILQ_FOREACH(tensor, &agreement->to_describe, order)
    {
        if (size + MUSTER_DESCRIPTION_SIZE_MAX > agreement->options.blob_bytes) {
            break;
        }
        if (!add_blob_room(agreement, size + MUSTER_DESCRIPTION_SIZE_MAX)) {
            return muster_error_set(MUSTER_FATAL, "no memory for descriptions of tensors");
        }
        size += muster_description_encode(tensor->name, &tensor->own, agreement->blob + size);
        agreement->counts.descriptions++;
    }
    *ret_bytes = agreement->blob;
    *ret_size = size;
    return MUSTER_OK;
}

static muster_status add_alternative(struct muster_agree_tensor *tensor, uint32_t rank,
                                     const struct muster_description *description)
{
    uint32_t count = tensor->alternative_count;
    struct muster_alternative *alternatives =
        realloc(tensor->alternatives, (count + 1) * sizeof *alternatives);
    if (alternatives == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a description of tensor %s",
                                tensor->name);
    }
    alternatives[count] = (struct muster_alternative){rank, *description};
    tensor->alternatives = alternatives;
    tensor->alternative_count = count + 1;
    return MUSTER_OK;
}

static muster_status learn_description(struct muster_agreement *agreement, uint32_t rank,
                                       const char *name,
                                       const struct muster_description *description)
{
    struct muster_agree_tensor *tensor = muster_agreement_name_tensor(agreement, name);
    if (tensor == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for tensor %s", name);
    }
    if (tensor->number == MUSTER_AGREEMENT_NONE) {
        tensor->described = *description;
        TRY(give_number(agreement, tensor));
        if (tensor->number == MUSTER_AGREEMENT_NONE && !tensor->pending) {
            muster_agreement_forget_tensor(agreement, tensor);
            return MUSTER_OK;
        }
    } else if (!muster_descriptions_match(&tensor->described, description) &&
               muster_agreement_alternative(tensor, rank) == NULL) {
        TRY(add_alternative(tensor, rank, description));
    }
    muster_agreement_place(agreement, tensor);
    return MUSTER_OK;
}

muster_status muster_agreement_described(struct muster_agreement *agreement, uint32_t rank,
                                         const unsigned char *bytes, size_t size)
{
    char name[MUSTER_TENSOR_NAME_MAX + 1];
    struct muster_description description;
    for (size_t at = 0, used = 0; at < size; at += used) {
        muster_status status =
            muster_description_decode(bytes + at, size - at, name, &description, &used);
        if (status != MUSTER_OK) {
            return muster_error_prefix(status, "rank %u sent", rank);
        }
        TRY(learn_description(agreement, rank, name, &description));
    }
    return MUSTER_OK;
}

/* Ready everywhere ----------------------------------------------------------------------------- */

muster_status muster_agreement_end_tensor(struct muster_agreement *agreement,
                                          struct muster_agree_tensor *tensor, const char *text)
{
    if (!tensor->pending) {
        return MUSTER_OK;
    }
    if (agreement->ended_count == agreement->ended_room) {
        size_t room = agreement->ended_room == 0 ? 16 : 2 * agreement->ended_room;
        struct muster_ended_tensor *ended = realloc(agreement->ended, room * sizeof *ended);
        if (ended == NULL) {
            return muster_error_set(MUSTER_FATAL, "no memory for the end of %zu tensors", room);
        }
        agreement->ended = ended;
        agreement->ended_room = room;
    }
    agreement->ended[agreement->ended_count++] =
        (struct muster_ended_tensor){.token = tensor->token, .text = strdup(text)};
    muster_agreement_release(agreement, tensor);
    return MUSTER_OK;
}

/* The lowest rank that has not described it differently. */
static uint32_t first_without_alternative(const struct muster_agree_tensor *tensor)
{
    uint32_t rank = 0;
    while (muster_agreement_alternative(tensor, rank) != NULL) {
        rank++;
    }
    return rank;
}

static void write_difference(const struct muster_agreement *agreement,
                             const struct muster_agree_tensor *tensor, char *ret_text, size_t size)
{
    struct muster_alternative one = tensor->alternatives[0];
    struct muster_alternative other = one;
    char texts[2][64];
    if (tensor->alternative_count < agreement->options.ranks) {
        one = (struct muster_alternative){first_without_alternative(tensor), tensor->described};
    }
    for (uint32_t i = 0; i < tensor->alternative_count; i++) {
        if (!muster_descriptions_match(&one.description, &tensor->alternatives[i].description)) {
            other = tensor->alternatives[i];
            break;
        }
    }
    muster_descriptions_differ(&one.description, &other.description, texts[0], texts[1]);
    (void)snprintf(ret_text, size, "tensor %s: rank %u submits it with %s, rank %u with %s",
                   tensor->name, one.rank, texts[0], other.rank, texts[1]);
}

muster_status muster_agreement_settle(struct muster_agreement *agreement,
                                      struct muster_agree_tensor *tensor, bool *ret_agreed)
{
    uint32_t count = tensor->alternative_count;
    char text[MUSTER_ERROR_MAX];
    bool agreed = count == 0 || count == agreement->options.ranks;
    for (uint32_t i = 1; i < count && agreed; i++) {
        agreed = muster_descriptions_match(&tensor->alternatives[0].description,
                                           &tensor->alternatives[i].description);
    }
    *ret_agreed = agreed;
    if (count == 0) {
        return MUSTER_OK;
    }
    if (agreed) {
        tensor->described = tensor->alternatives[0].description;
    } else {
        write_difference(agreement, tensor, text, sizeof text);
        TRY(muster_agreement_end_tensor(agreement, tensor, text));
    }
    free(tensor->alternatives);
    tensor->alternatives = NULL;
    tensor->alternative_count = 0;
    return MUSTER_OK;
}
