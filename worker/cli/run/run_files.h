/* The launcher's temporary folder (its server's port, the job's token) and the token itself. */
#ifndef MUSTER_WORKER_CLI_RUN_RUN_FILES_H
#define MUSTER_WORKER_CLI_RUN_RUN_FILES_H

#include "worker/cli/run/run_parts.h"

/* Settles the token: the token file's, else MUSTER_TOKEN's, else, for a server of our own, a random
 * one. MUSTER_INVALID names the file or folder that cannot be used. */
MUSTER_CHECKED muster_status muster_run_files_create(struct muster_supervisor *supervisor);
/* Removes the folder with what is in it. */
void muster_run_files_remove(struct muster_supervisor *supervisor);

#endif
