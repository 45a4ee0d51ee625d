/* CRC-32 of all columns of a row but the job's number, in whose place its name is. */
#include "rendezvous/store/row_checksum.h"

#include <endian.h>
#include <string.h>
#include <zlib.h>

static unsigned long add_bytes(unsigned long sum, const void *bytes, size_t size_bytes)
{
    /* For crc32() a pointer to nothing begins anew. */
    return size_bytes > 0 ? crc32_z(sum, (const Bytef *)bytes, size_bytes) : sum;
}

/* With the terminator, so that "ab", "c" and "a", "bc" differ. */
static unsigned long add_text(unsigned long sum, const char *text)
{
    return add_bytes(sum, text, strlen(text) + 1);
}

static unsigned long add_number(unsigned long sum, uint64_t number)
{
    uint64_t little = htole64(number);
    return add_bytes(sum, &little, sizeof little);
}

uint32_t muster_row_checksum_job(const struct muster_store_job *job)
{
    unsigned long sum = add_text(crc32_z(0, NULL, 0), job->name);
    sum = add_text(sum, job->token);
    sum = add_text(sum, job->link_token);
    sum = add_number(sum, job->snapshot);
    sum = add_number(sum, job->record_count);
    return (uint32_t)add_number(sum, job->first_event);
}

uint32_t muster_row_checksum_event(const char *job, uint64_t sequence, const char *text,
                                   size_t size_bytes)
{
    unsigned long sum = add_text(crc32_z(0, NULL, 0), job);
    sum = add_number(sum, sequence);
    return (uint32_t)add_bytes(sum, text, size_bytes);
}

uint32_t muster_row_checksum_record(const char *job, uint64_t snapshot, uint64_t index,
                                    const char *text, size_t size_bytes)
{
    unsigned long sum = add_text(crc32_z(0, NULL, 0), job);
    sum = add_number(sum, snapshot);
    sum = add_number(sum, index);
    return (uint32_t)add_bytes(sum, text, size_bytes);
}

uint32_t muster_row_checksum_value(const char *job, uint64_t generation, const char *key,
                                   const void *value, size_t size_bytes)
{
    unsigned long sum = add_text(crc32_z(0, NULL, 0), job);
    sum = add_number(sum, generation);
    sum = add_text(sum, key);
    return (uint32_t)add_bytes(sum, value, size_bytes);
}
