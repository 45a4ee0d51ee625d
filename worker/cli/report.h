/* The history of a job, as lines for people and as JSON for programs: `muster run` prints it at the
 * end, `muster job show` at any time. */
#ifndef MUSTER_WORKER_CLI_REPORT_H
#define MUSTER_WORKER_CLI_REPORT_H

#include "elastic/messages/messages.h"
#include "worker/session/stored_figures.h"

enum { MUSTER_REPORT_LINE_SIZE = 512 };

/* The head of the table of generations, and one row of it, which is written to `line` and
 * returned. */
const char *muster_report_generation_head(void);
const char *muster_report_generation(const struct muster_job_response *job, uint32_t index,
                                     char *line, size_t size);
/* "rank 2 (host a, pid 4711) died after 3.20 s, in generation 1: ..." */
const char *muster_report_departure(const struct muster_departure_record *record, char *line,
                                    size_t size);

const char *muster_report_phase(enum muster_job_phase phase);
const char *muster_report_member_phase(enum muster_member_phase phase);

/* The whole number of a generation, as a string: it is beyond 2^53, which is as far as many readers
 * of JSON count. NULL: out of memory. */
json_t *muster_report_number_json(uint64_t generation);

/* NULL: out of memory. */
json_t *muster_report_generations_json(const struct muster_job_response *job);
json_t *muster_report_departures_json(const struct muster_job_response *job);
json_t *muster_report_members_json(const struct muster_job_response *job);

/* Prints link figures on standard output, one line for each level. */
void muster_report_figures(const struct muster_figures *figures);

#endif
