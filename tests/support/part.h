/* Values in a JSON answer, by their path. */
#ifndef MUSTER_TESTS_SUPPORT_PART_H
#define MUSTER_TESTS_SUPPORT_PART_H

#include <jansson.h>

/* Finds "formed.hosts.0.name"; NULL: the answer has none. */
const json_t *test_part(const json_t *json, const char *path);
/* "" if there is none, or it is not a text. */
const char *test_part_text(const json_t *json, const char *path);
/* A JSON number, or a text that is a number (64-bit ones are sent so); -1: neither. */
long long test_part_number(const json_t *json, const char *path);

#endif
