/* The log of musterd as JSON, for programs that collect logs. */
#ifndef MUSTER_RENDEZVOUS_MUSTERD_LOG_H
#define MUSTER_RENDEZVOUS_MUSTERD_LOG_H

#include "worker/base/log.h"

/* A muster_log_writer: writes one object and a line end to standard error. The fields with which
 * the text begins become members, as strings: "job=a member=b joins" is {"time": "...Z", "level":
 * "info", "job": "a", "member": "b", "text": "joins"}. */
void muster_musterd_log_json(enum muster_log_level level, const char *text);

#endif
