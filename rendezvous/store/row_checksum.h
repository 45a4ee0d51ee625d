/* Checksums of rows: a row that was changed outside of musterd, moved to another job, or damaged
 * on the disk has another one. They find accidents, not forgers. */
#ifndef MUSTER_RENDEZVOUS_STORE_ROW_CHECKSUM_H
#define MUSTER_RENDEZVOUS_STORE_ROW_CHECKSUM_H

#include "rendezvous/store/store.h"

uint32_t muster_row_checksum_job(const struct muster_store_job *job);
uint32_t muster_row_checksum_event(const char *job, uint64_t sequence, const char *text,
                                   size_t size_bytes);
uint32_t muster_row_checksum_record(const char *job, uint64_t snapshot, uint64_t index,
                                    const char *text, size_t size_bytes);
uint32_t muster_row_checksum_value(const char *job, uint64_t generation, const char *key,
                                   const void *value, size_t size_bytes);

#endif
