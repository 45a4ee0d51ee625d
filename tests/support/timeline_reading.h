/* Reads the files of timelines, for tests. A file or an event that is not as it should be fails the
 * test. */
#ifndef MUSTER_TESTS_SUPPORT_TIMELINE_READING_H
#define MUSTER_TESTS_SUPPORT_TIMELINE_READING_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

uint64_t timeline_file_size(const char *name);
char *timeline_read_text(const char *name);
/* Reads the file as it is. */
json_t *timeline_load(const char *path);
const char *timeline_text(const json_t *event, const char *key);
double timeline_number(const json_t *event, const char *key);
double timeline_argument(const json_t *event, const char *key);
/* The index-th event of this phase; NULL if there are fewer. */
const json_t *timeline_find(const json_t *events, const char *phase, size_t index);
size_t timeline_count(const json_t *events, const char *phase);

#endif
