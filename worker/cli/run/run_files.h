/* The temporary folder of the launcher (the port of its server, the token of its job) and the
 * token itself. */
#ifndef MUSTER_WORKER_CLI_RUN_RUN_FILES_H
#define MUSTER_WORKER_CLI_RUN_RUN_FILES_H

#include "worker/cli/run/run_parts.h"

/* Creates the folder, if the job has a server of its own, and finds the token: that of the token
 * file, else MUSTER_TOKEN, else a random one if the job has a server of its own. MUSTER_INVALID
 * names the file or folder that cannot be used. */
MUSTER_CHECKED muster_status muster_run_files_create(struct muster_supervisor *supervisor);
/* Removes the folder and the files in it. */
void muster_run_files_remove(struct muster_supervisor *supervisor);

#endif
