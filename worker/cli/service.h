/*
 * The calls that the command makes to a rendezvous server. Each is one attempt without retries: it
 * blocks until the answer, an error or the timeout.
 *
 * Threads: as for a muster_client.
 */
#ifndef MUSTER_WORKER_CLI_SERVICE_H
#define MUSTER_WORKER_CLI_SERVICE_H

#include "elastic/messages/messages.h"
#include "worker/session/rendezvous_client.h"

/* muster_client_create() and muster_client_secure(), the latter with what the variables
 * MUSTER_SERVER_TOKEN and MUSTER_RENDEZVOUS_AUTHORITY, _CERTIFICATE and _KEY say. */
MUSTER_CHECKED muster_status muster_service_connect(const char *url, const char *token,
                                                    struct muster_client **ret_client);

/* Statuses and texts are those of muster_client_call(). ret_code may be NULL. */
MUSTER_CHECKED muster_status muster_service_get_job(struct muster_client *client, const char *job,
                                                    uint32_t timeout_ms,
                                                    struct muster_job_response *ret_job,
                                                    enum muster_rpc_code *ret_code);
MUSTER_CHECKED muster_status muster_service_list_jobs(struct muster_client *client,
                                                      uint32_t timeout_ms,
                                                      struct muster_jobs_response *ret_jobs);
MUSTER_CHECKED muster_status muster_service_resize(struct muster_client *client, const char *job,
                                                   uint32_t target_size, uint32_t timeout_ms);
MUSTER_CHECKED muster_status muster_service_end_job(struct muster_client *client, const char *job,
                                                    const char *why, uint32_t timeout_ms);

/* Reads a token, which is the first line of the file. MUSTER_INVALID names the file. */
MUSTER_CHECKED muster_status muster_service_read_token(const char *path,
                                                       char ret_token[MUSTER_TOKEN_MAX_BYTES + 1]);

/* Sets MUSTER_SERVER_TOKEN, for this process and those that it starts, to the token of the file.
 * Before there are other threads. MUSTER_INVALID names the file. */
MUSTER_CHECKED muster_status muster_service_use_server_token(const char *path);

#endif
