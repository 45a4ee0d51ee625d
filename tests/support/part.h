/* Parts of a JSON answer by their path. */
#ifndef MUSTER_TESTS_SUPPORT_PART_H
#define MUSTER_TESTS_SUPPORT_PART_H

#include <jansson.h>

/* "formed.hosts.0.name"; NULL: not there. */
const json_t *test_part(const json_t *json, const char *path);
/* "" if it is not there or no text. */
const char *test_part_text(const json_t *json, const char *path);
/* Numbers of either kind, the text kind too; -1: not there. */
long long test_part_number(const json_t *json, const char *path);

#endif
