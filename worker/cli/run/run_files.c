/* The temporary folder of the launcher, and the token of the job. */
#include "worker/cli/run/run_files.h"

#include "worker/base/cleanup.h"
#include "worker/base/random.h"
#include "worker/cli/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKEN_BYTES = 16 };

static bool try_folder(struct muster_supervisor *supervisor, const char *base)
{
    if (base == NULL || base[0] != '/') {
        return false;
    }
    int used = snprintf(supervisor->folder, sizeof supervisor->folder, "%s/muster-XXXXXX", base);
    bool made = used < (int)sizeof supervisor->folder - 16 && mkdtemp(supervisor->folder) != NULL;
    if (!made) {
        supervisor->folder[0] = '\0';
    }
    return made;
}

static muster_status create_folder(struct muster_supervisor *supervisor)
{
    if (try_folder(supervisor, getenv("XDG_RUNTIME_DIR")) ||
        try_folder(supervisor, getenv("TMPDIR")) || try_folder(supervisor, "/tmp")) {
        return MUSTER_OK;
    }
    return muster_error_errno(MUSTER_INVALID, "a temporary folder in /tmp");
}

/* Creates a random token, and the file from which `muster job` reads it. */
static muster_status create_token(struct muster_supervisor *supervisor)
{
    muster_random_hex(TOKEN_BYTES, supervisor->token);
    AUTO_CLOSE int fd = open(supervisor->token_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || dprintf(fd, "%s\n", supervisor->token) < 0) {
        return muster_error_errno(MUSTER_INVALID, "token file %s", supervisor->token_file);
    }
    return MUSTER_OK;
}

/* A --token-file that does not exist is created with a random token. A job without a server of its
 * own needs no token unless the server asks for one. */
static muster_status find_token(struct muster_supervisor *supervisor)
{
    const struct muster_run_options *options = supervisor->options;
    if (options->token_file != NULL) {
        (void)snprintf(supervisor->token_file, sizeof supervisor->token_file, "%s",
                       options->token_file);
        return access(options->token_file, F_OK) == 0
                   ? muster_service_read_token(options->token_file, supervisor->token)
                   : create_token(supervisor);
    }
    if (options->token != NULL) {
        if (strlen(options->token) > MUSTER_TOKEN_MAX_BYTES) {
            return muster_error_set(MUSTER_INVALID, "MUSTER_TOKEN: longer than %d bytes",
                                    MUSTER_TOKEN_MAX_BYTES);
        }
        (void)snprintf(supervisor->token, sizeof supervisor->token, "%s", options->token);
        return MUSTER_OK;
    }
    if (!supervisor->private_server) {
        return MUSTER_OK;
    }
    (void)snprintf(supervisor->token_file, sizeof supervisor->token_file, "%s/token",
                   supervisor->folder);
    return create_token(supervisor);
}

muster_status muster_run_files_create(struct muster_supervisor *supervisor)
{
    if (supervisor->private_server) {
        TRY(create_folder(supervisor));
    }
    return find_token(supervisor);
}

void muster_run_files_remove(struct muster_supervisor *supervisor)
{
    static const char *const files[] = {"port",       "token",      "job.db",
                                        "job.db-wal", "job.db-shm", "job.db-journal"};
    char path[PATH_MAX + 16];
    if (supervisor->folder[0] == '\0') {
        return;
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", supervisor->folder, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(supervisor->folder);
}
