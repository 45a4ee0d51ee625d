/*
 * The floor: the checksum of frame headers, CRC-32C (Castagnoli; RFC 3720, section 12.1).
 * Processors have an instruction for it, so that a header costs some tens of cycles; the CRC-32 of
 * zlib costs ten times that. Pure.
 */
#ifndef MUSTER_WORKER_BASE_CHECKSUM_H
#define MUSTER_WORKER_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint32_t muster_checksum(const unsigned char *bytes, size_t size);

/* The same without the instruction: for processors that lack it, and for tests. */
uint32_t muster_checksum_by_table(const unsigned char *bytes, size_t size);

#endif
