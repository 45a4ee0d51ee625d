/* A communicator without a service: processes that know their ranks meet in a folder that all of
 * them see. Every one brings a number; all of them print the sum.
 *
 *     folder=$(mktemp -d)
 *     for rank in 0 1 2 3; do open_with_files $rank 4 "$folder" & done; wait
 */
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, MEMBERS_MAX = 10000, WAIT_MS = 10000, PAUSE_MS = 5 };

struct meeting {
    const char *folder;
    unsigned rank, size;
};

/* Under another name first, so that nobody reads a part of it. A folder is for one meeting: a link,
 * unlike a rename, replaces no file of an earlier one. */
static int write_blob(const struct meeting *meeting, const void *blob, size_t size_bytes)
{
    char path[PATH_SIZE];
    char part[PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/%u", meeting->folder, meeting->rank);
    (void)snprintf(part, sizeof part, "%s/%u.part", meeting->folder, meeting->rank);
    FILE *file = fopen(part, "wbx");
    if (file == NULL) {
        perror(part);
        return 1;
    }
    size_t written = fwrite(blob, size_bytes, 1, file);
    int failed = fclose(file) != 0 || written != 1 || link(part, path) != 0;
    if (failed) {
        perror(path);
    }
    (void)unlink(part);
    return failed;
}

/* 0: the file is there, and has been read. */
static int read_blob(const struct meeting *meeting, unsigned rank, void *blob, size_t size_bytes)
{
    char path[PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/%u", meeting->folder, rank);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return 1;
    }
    size_t got = fread(blob, size_bytes, 1, file);
    (void)fclose(file);
    return got == 1 ? 0 : 1;
}

static long elapsed_ms(const struct timespec *start)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000;
}

/* The exchange: a blocking allgather by files, which gives up after a while. */
static int exchange(const void *mine, void *all, size_t size_bytes, void *user_data)
{
    const struct meeting *meeting = user_data;
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    struct timespec start;
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    if (write_blob(meeting, mine, size_bytes) != 0) {
        return 1;
    }
    for (unsigned rank = 0; rank < meeting->size; rank++) {
        while (read_blob(meeting, rank, (char *)all + rank * size_bytes, size_bytes) != 0) {
            if (elapsed_ms(&start) > WAIT_MS) {
                fprintf(stderr, "open_with_files: rank %u has not come to %s within %d s\n", rank,
                        meeting->folder, WAIT_MS / 1000);
                return 1;
            }
            (void)nanosleep(&pause, NULL);
        }
    }
    return 0;
}

/* Digits only, and at most `most`. */
static unsigned read_number(const char *text, unsigned most)
{
    char *end = NULL;
    unsigned long number = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number > most) {
        fprintf(stderr, "open_with_files: \"%s\": must be a number up to %u\n", text, most);
        exit(2);
    }
    return (unsigned)number;
}

static muster_status add_up(muster_session *session)
{
    unsigned rank = muster_rank(session, MUSTER_GLOBAL);
    unsigned size = muster_size(session, MUSTER_GLOBAL);
    double number = rank + 1;
    double sum = 0;
    muster_status status = muster_allreduce(session, MUSTER_GLOBAL, &number, &sum, 1,
                                            MUSTER_FLOAT64, MUSTER_SUM, NULL);
    if (status == MUSTER_OK) {
        printf("rank %u of %u (local %u of %u): 1 + ... + %u = %g\n", rank, size,
               muster_rank(session, MUSTER_LOCAL), muster_size(session, MUSTER_LOCAL), size, sum);
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: open_with_files RANK SIZE FOLDER\n");
        return 2;
    }
    struct meeting meeting = {.folder = argv[3],
                              .rank = read_number(argv[1], MEMBERS_MAX),
                              .size = read_number(argv[2], MEMBERS_MAX)};
    muster_session *session = NULL;
    muster_status status =
        muster_open_with(NULL, meeting.rank, meeting.size, exchange, &meeting, &session);
    if (status == MUSTER_OK) {
        status = add_up(session);
    }
    if (status != MUSTER_OK) {
        fprintf(stderr, "open_with_files: %s\n", muster_last_error());
    }
    muster_close(session);
    return status == MUSTER_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
