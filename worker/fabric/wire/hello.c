/* Hellos and answers: encoded, decoded, and the texts of the verdicts. */
#include "worker/fabric/wire/hello.h"

#include "worker/base/bytes.h"
#include "worker/fabric/wire/frame.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

enum {
    AT_MAGIC = 0,       /* 8 */
    AT_VERSION = 8,     /* 2 */
    AT_VERDICT = 10,    /* 2; answers only */
    AT_CHECKSUM = 12,   /* 4, of the bytes before and after it */
    AT_GENERATION = 16, /* 8 */
    AT_FROM = 24,       /* 36, no terminator */
    AT_TO = 60,         /* 36 */
    AT_TOKEN = 96,      /* 128, filled up with zeros */
    AT_TICKET = 224,    /* 4 */
    AT_PATHS = 228,     /* 1: 4 bits index, 4 bits connections - 1 */
    AT_RANK = 229,      /* 3 */
    UUID_BYTES = MUSTER_UUID_SIZE - 1,
    TOKEN_BYTES = MUSTER_TOKEN_SIZE - 1,
};

static const unsigned char hello_magic[8] = "MUSTERhi";
static const unsigned char answer_magic[8] = "MUSTERok";

static uint64_t checksum(const unsigned char *bytes, unsigned size)
{
    unsigned long sum = crc32(0, bytes, AT_CHECKSUM);
    return crc32(sum, bytes + AT_CHECKSUM + 4, size - AT_CHECKSUM - 4);
}

muster_status muster_wire_version_check(uint64_t version)
{
    return version == MUSTER_WIRE_VERSION
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL,
                                  "its wire version is %" PRIu64 ", this member's is %d", version,
                                  MUSTER_WIRE_VERSION);
}

void muster_hello_encode(const struct muster_hello *hello,
                         unsigned char ret_bytes[MUSTER_HELLO_SIZE])
{
    unsigned char *b = ret_bytes;
    memset(b, 0, MUSTER_HELLO_SIZE);
    memcpy(b + AT_MAGIC, hello_magic, sizeof hello_magic);
    muster_bytes_put(b + AT_VERSION, MUSTER_WIRE_VERSION, 2);
    muster_bytes_put(b + AT_GENERATION, hello->generation, 8);
    memcpy(b + AT_FROM, hello->from, strnlen(hello->from, UUID_BYTES));
    memcpy(b + AT_TO, hello->to, strnlen(hello->to, UUID_BYTES));
    memcpy(b + AT_TOKEN, hello->token, strnlen(hello->token, TOKEN_BYTES));
    muster_bytes_put(b + AT_TICKET, hello->ticket, 4);
    uint8_t further = hello->connections > 0 ? (uint8_t)(hello->connections - 1) : 0;
    b[AT_PATHS] = (unsigned char)((hello->index & 15) | further << 4);
    muster_bytes_put(b + AT_RANK, hello->rank, 3);
    muster_bytes_put(b + AT_CHECKSUM, checksum(b, MUSTER_HELLO_SIZE), 4);
}

muster_status muster_hello_decode(const unsigned char bytes[MUSTER_HELLO_SIZE],
                                  struct muster_hello *ret_hello)
{
    const unsigned char *b = bytes;
    if (memcmp(b + AT_MAGIC, hello_magic, sizeof hello_magic) != 0) {
        return muster_error_set(MUSTER_INVALID, "no Muster peer");
    }
    TRY(muster_wire_version_check(muster_bytes_get(b + AT_VERSION, 2)));
    if (muster_bytes_get(b + AT_CHECKSUM, 4) != checksum(b, MUSTER_HELLO_SIZE)) {
        return muster_error_set(MUSTER_INVALID, "hello with a wrong checksum");
    }
    memset(ret_hello, 0, sizeof *ret_hello);
    ret_hello->generation = muster_bytes_get(b + AT_GENERATION, 8);
    ret_hello->ticket = (uint32_t)muster_bytes_get(b + AT_TICKET, 4);
    ret_hello->index = b[AT_PATHS] & 15;
    ret_hello->connections = (uint8_t)((b[AT_PATHS] >> 4) + 1);
    ret_hello->rank = (uint32_t)muster_bytes_get(b + AT_RANK, 3);
    memcpy(ret_hello->from, b + AT_FROM, UUID_BYTES);
    memcpy(ret_hello->to, b + AT_TO, UUID_BYTES);
    memcpy(ret_hello->token, b + AT_TOKEN, TOKEN_BYTES);
    return MUSTER_OK;
}

void muster_answer_encode(enum muster_verdict verdict, unsigned char ret_bytes[MUSTER_ANSWER_SIZE])
{
    memset(ret_bytes, 0, MUSTER_ANSWER_SIZE);
    memcpy(ret_bytes + AT_MAGIC, answer_magic, sizeof answer_magic);
    muster_bytes_put(ret_bytes + AT_VERSION, MUSTER_WIRE_VERSION, 2);
    muster_bytes_put(ret_bytes + AT_VERDICT, verdict, 2);
    muster_bytes_put(ret_bytes + AT_CHECKSUM, checksum(ret_bytes, MUSTER_ANSWER_SIZE), 4);
}

muster_status muster_answer_decode(const unsigned char bytes[MUSTER_ANSWER_SIZE],
                                   enum muster_verdict *ret_verdict)
{
    uint64_t verdict = muster_bytes_get(bytes + AT_VERDICT, 2);
    if (memcmp(bytes + AT_MAGIC, answer_magic, sizeof answer_magic) != 0 ||
        muster_bytes_get(bytes + AT_CHECKSUM, 4) != checksum(bytes, MUSTER_ANSWER_SIZE)) {
        return muster_error_set(MUSTER_INVALID, "no Muster peer listens there");
    }
    if (muster_wire_version_check(muster_bytes_get(bytes + AT_VERSION, 2)) != MUSTER_OK) {
        return muster_error_prefix(MUSTER_FATAL, "refused");
    }
    if (verdict < MUSTER_WELCOME || verdict > MUSTER_REFUSED_RANK) {
        return muster_error_set(MUSTER_INVALID, "no Muster peer listens there");
    }
    *ret_verdict = (enum muster_verdict)verdict;
    return MUSTER_OK;
}

bool muster_answer_begins(unsigned char first_byte)
{
    return first_byte == (unsigned char)answer_magic[0];
}

const char *muster_verdict_text(enum muster_verdict verdict)
{
    switch (verdict) {
    case MUSTER_WELCOME:
        return "welcome";
    case MUSTER_REFUSED_VERSION:
        return "refused: another wire version";
    case MUSTER_REFUSED_TOKEN:
        return "refused: wrong link token";
    case MUSTER_REFUSED_UNKNOWN:
        return "refused: no member of its generation, or another member listens there";
    case MUSTER_REFUSED_CROSSED:
        return "refused: both have dialled";
    case MUSTER_REFUSED_LOST:
        return "refused: it has lost this link before";
    case MUSTER_REFUSED_MEMORY:
        return "refused: it does not share memory";
    case MUSTER_REFUSED_TLS:
        return "refused: it uses TLS, and this member does not";
    case MUSTER_REFUSED_PLAIN:
        return "refused: it does not use TLS, and this member does";
    case MUSTER_WAIT:
        return "its generation has not begun";
    case MUSTER_REFUSED_VERBS:
        return "refused: not over RDMA";
    case MUSTER_REFUSED_RANK:
        return "refused: it knows this member by another rank, see its log";
    }
    return "refused";
}

bool muster_token_equal(const char *a, const char *b)
{
    char left[MUSTER_TOKEN_SIZE] = "";
    char right[MUSTER_TOKEN_SIZE] = "";
    memcpy(left, a, strnlen(a, TOKEN_BYTES));
    memcpy(right, b, strnlen(b, TOKEN_BYTES));
    unsigned char differences = 0;
    for (size_t i = 0; i < TOKEN_BYTES; i++) {
        differences = (unsigned char)(differences | (left[i] ^ right[i]));
    }
    return differences == 0;
}

bool muster_hello_begins(const unsigned char *bytes, size_t size)
{
    size_t common = size < sizeof hello_magic ? size : sizeof hello_magic;
    return memcmp(bytes, hello_magic, common) == 0;
}
