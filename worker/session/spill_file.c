/* Committed states as files. */
#include "worker/session/spill_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "worker/base/bytes.h"
#include "worker/base/cleanup.h"
#include "worker/session/sync_wire.h"

enum {
    AT_MAGIC = 0,
    AT_FORMAT = 8,
    AT_COUNT = 12,
    AT_GENERATION = 16,
    AT_VERSION = 24,
    HEAD_SIZE = 32,
    CHECKSUM_SIZE = 4,
    FORMAT = 1,
    PIECE_BYTES = 4 << 20, /* of one write or read: its checksum is made while it is in the cache */
};

static const char magic[8] = {'M', 'U', 'S', 'T', 'E', 'R', 'S', 'T'};

struct spill_path {
    char text[PATH_MAX];
};

/* Names ---------------------------------------------------------------------------------------- */

static void name_file(const struct muster_spill_place *place, struct muster_spill_key key,
                      struct spill_path *ret_path)
{
    (void)snprintf(ret_path->text, sizeof ret_path->text,
                   "%s/%s.%016" PRIx64 ".%016" PRIx64 ".state", place->folder, place->job,
                   key.generation, key.version);
}

/* While it is written: the process shows whether somebody still does. */
static void name_unfinished(const struct muster_spill_place *place, struct muster_spill_key key,
                            struct spill_path *ret_path)
{
    (void)snprintf(ret_path->text, sizeof ret_path->text,
                   "%s/.%s.%016" PRIx64 ".%016" PRIx64 ".%d.tmp", place->folder, place->job,
                   key.generation, key.version, (int)getpid());
}

/* 16 digits, then the character. */
static bool parse_hex(const char **text, char end, uint64_t *ret_number)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t number = 0;
    for (int i = 0; i < 16; i++, ++*text) {
        const char *digit = **text != '\0' ? strchr(digits, **text) : NULL;
        if (digit == NULL) {
            return false;
        }
        number = number << 4 | (uint64_t)(digit - digits);
    }
    *ret_number = number;
    return *(*text)++ == end;
}

/* "JOB.GENERATION.VERSION." and what follows it, for which *ret_rest is set. */
static bool parse_name(const struct muster_spill_place *place, const char *name,
                       struct muster_spill_key *ret_key, const char **ret_rest)
{
    size_t length = strlen(place->job);
    if (strncmp(name, place->job, length) != 0 || name[length] != '.') {
        return false;
    }
    const char *text = name + length + 1;
    if (!parse_hex(&text, '.', &ret_key->generation) || !parse_hex(&text, '.', &ret_key->version)) {
        return false;
    }
    *ret_rest = text;
    return true;
}

static int compare_keys(const void *left, const void *right)
{
    const struct muster_spill_key *a = left;
    const struct muster_spill_key *b = right;
    if (a->generation != b->generation) {
        return a->generation < b->generation ? 1 : -1;
    }
    return a->version < b->version ? 1 : a->version > b->version ? -1 : 0;
}

/* If there are more than fit, the oldest are left out. */
static void add_key(struct muster_spill_key *keys, uint32_t *count, struct muster_spill_key key)
{
    if (*count < MUSTER_SPILL_FILES_MAX) {
        keys[(*count)++] = key;
        return;
    }
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < *count; i++) {
        oldest = compare_keys(&keys[i], &keys[oldest]) > 0 ? i : oldest;
    }
    if (compare_keys(&key, &keys[oldest]) < 0) {
        keys[oldest] = key;
    }
}

muster_status muster_spill_file_list(const struct muster_spill_place *place,
                                     struct muster_spill_key *ret_keys, uint32_t *ret_count)
{
    DIR *folder = opendir(place->folder);
    if (folder == NULL) {
        return muster_error_errno(MUSTER_RETRY, "spill %s", place->folder);
    }
    uint32_t count = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        struct muster_spill_key key;
        const char *rest;
        if (parse_name(place, entry->d_name, &key, &rest) && strcmp(rest, "state") == 0) {
            add_key(ret_keys, &count, key);
        }
    }
    (void)closedir(folder);
    qsort(ret_keys, count, sizeof *ret_keys, compare_keys);
    *ret_count = count;
    return MUSTER_OK;
}

/* Writing -------------------------------------------------------------------------------------- */

static muster_status write_all(int fd, const unsigned char *bytes, size_t size_bytes)
{
    while (size_bytes > 0) {
        ssize_t written = write(fd, bytes, size_bytes);
        if (written < 0 && errno != EINTR) {
            return MUSTER_RETRY;
        }
        size_t done = written > 0 ? (size_t)written : 0;
        bytes += done;
        size_bytes -= done;
    }
    return MUSTER_OK;
}

static muster_status write_checksum(int fd, uLong crc)
{
    unsigned char bytes[CHECKSUM_SIZE];
    muster_bytes_put(bytes, (uint64_t)crc, CHECKSUM_SIZE);
    return write_all(fd, bytes, sizeof bytes);
}

static size_t head_size(const struct muster_state *state)
{
    return HEAD_SIZE + (size_t)state->count * MUSTER_OUTLINE_SIZE;
}

/* New; NULL: no memory. */
static unsigned char *encode_head(const struct muster_state *state, struct muster_spill_key key)
{
    unsigned char *head = calloc(1, head_size(state));
    if (head != NULL) {
        memcpy(head + AT_MAGIC, magic, sizeof magic);
        muster_bytes_put(head + AT_FORMAT, FORMAT, 4);
        muster_bytes_put(head + AT_COUNT, state->count, 4);
        muster_bytes_put(head + AT_GENERATION, key.generation, 8);
        muster_bytes_put(head + AT_VERSION, key.version, 8);
        muster_outlines_encode(state, head + HEAD_SIZE);
    }
    return head;
}

static muster_status write_buffer(int fd, const unsigned char *bytes, size_t size_bytes)
{
    uLong crc = crc32(0, NULL, 0);
    for (size_t at = 0; at < size_bytes;) {
        size_t piece = size_bytes - at < PIECE_BYTES ? size_bytes - at : PIECE_BYTES;
        crc = crc32(crc, bytes + at, (uInt)piece);
        TRY(write_all(fd, bytes + at, piece));
        at += piece;
    }
    return write_checksum(fd, crc);
}

static muster_status write_contents(int fd, const struct muster_state *state,
                                    const unsigned char *bytes, struct muster_spill_key key)
{
    AUTO_FREE unsigned char *head = encode_head(state, key);
    if (head == NULL) {
        errno = ENOMEM;
        return MUSTER_RETRY;
    }
    TRY(write_all(fd, head, head_size(state)));
    TRY(write_checksum(fd, crc32(crc32(0, NULL, 0), head, (uInt)head_size(state))));
    for (uint32_t i = 0; i < state->count; i++) {
        TRY(write_buffer(fd, bytes + state->buffers[i].offset_bytes, state->buffers[i].size_bytes));
    }
    return fsync(fd) == 0 ? MUSTER_OK : MUSTER_RETRY;
}

/* Some file systems cannot rename without replacing. The name is this generation's and version's,
 * so nobody else gives it to another state. */
static muster_status give_name(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
        return MUSTER_OK;
    }
    if (errno == EEXIST) {
        return unlink(from) == 0 ? MUSTER_OK : MUSTER_RETRY;
    }
    bool unsupported = errno == EINVAL || errno == ENOSYS;
    return unsupported && access(to, F_OK) != 0 && rename(from, to) == 0 ? MUSTER_OK : MUSTER_RETRY;
}

/* So that the name survives a power loss, too. */
static void sync_folder(const char *folder)
{
    AUTO_CLOSE int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
    }
}

muster_status muster_spill_file_write(const struct muster_spill_place *place,
                                      const struct muster_state *state, const unsigned char *bytes,
                                      struct muster_spill_key key)
{
    struct spill_path path;
    struct spill_path unfinished;
    name_file(place, key, &path);
    name_unfinished(place, key, &unfinished);
    int fd = open(unfinished.text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return muster_error_errno(MUSTER_RETRY, "spill %s", path.text);
    }
    muster_status status = write_contents(fd, state, bytes, key);
    int error = errno;
    if (close(fd) != 0 && status == MUSTER_OK) {
        status = MUSTER_RETRY;
        error = errno;
    }
    if (status == MUSTER_OK) {
        status = give_name(unfinished.text, path.text);
        error = errno;
    }
    if (status != MUSTER_OK) {
        (void)unlink(unfinished.text);
        errno = error;
        return muster_error_errno(MUSTER_RETRY, "spill %s", path.text);
    }
    sync_folder(place->folder);
    return MUSTER_OK;
}

/* Reading -------------------------------------------------------------------------------------- */

static muster_status refuse(const char *path, const char *format, ...) MUSTER_PRINTF(2, 3);

static muster_status refuse(const char *path, const char *format, ...)
{
    char why[MUSTER_ERROR_MAX / 2];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    return muster_error_set(MUSTER_INVALID, "spill %s: %s", path, why);
}

/* MUSTER_INVALID: the file ends before. */
static muster_status read_all(int fd, const char *path, unsigned char *bytes, size_t size_bytes)
{
    while (size_bytes > 0) {
        ssize_t got = read(fd, bytes, size_bytes);
        if (got == 0) {
            return refuse(path, "it is truncated");
        }
        if (got < 0 && errno != EINTR) {
            return muster_error_errno(MUSTER_RETRY, "spill %s", path);
        }
        size_t done = got > 0 ? (size_t)got : 0;
        bytes += done;
        size_bytes -= done;
    }
    return MUSTER_OK;
}

static muster_status check_checksum(int fd, const char *path, uLong crc, const char *what)
{
    unsigned char bytes[CHECKSUM_SIZE];
    TRY(read_all(fd, path, bytes, sizeof bytes));
    return muster_bytes_get(bytes, CHECKSUM_SIZE) == (uint64_t)crc
               ? MUSTER_OK
               : refuse(path, "the checksum of %s does not fit: it was torn or edited", what);
}

static muster_status check_head(const char *path, const unsigned char *head,
                                struct muster_spill_key key)
{
    if (memcmp(head + AT_MAGIC, magic, sizeof magic) != 0) {
        return refuse(path, "it is no state of Muster");
    }
    if (muster_bytes_get(head + AT_FORMAT, 4) != FORMAT) {
        return refuse(path, "it has format %" PRIu64 ", this libmuster reads format %d",
                      muster_bytes_get(head + AT_FORMAT, 4), FORMAT);
    }
    if (muster_bytes_get(head + AT_GENERATION, 8) != key.generation ||
        muster_bytes_get(head + AT_VERSION, 8) != key.version) {
        return refuse(path, "it holds another generation or version than its name says");
    }
    return MUSTER_OK;
}

static muster_status check_layout(const char *path, const struct muster_state *state,
                                  const struct muster_outline *outlines, uint32_t count)
{
    if (count != state->count) {
        return refuse(path, "it holds %u buffers, and %u are registered", count, state->count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct muster_registered_buffer *buffer = &state->buffers[i];
        if (strcmp(outlines[i].name, buffer->name) != 0 ||
            outlines[i].size_bytes != buffer->size_bytes) {
            return refuse(path,
                          "its buffer %u is \"%s\" with %" PRIu64
                          " bytes, the registered one is \"%s\" with %zu",
                          i, outlines[i].name, outlines[i].size_bytes, buffer->name,
                          buffer->size_bytes);
        }
    }
    return MUSTER_OK;
}

static muster_status read_head(int fd, const char *path, const struct muster_state *state,
                               struct muster_spill_key key)
{
    unsigned char head[HEAD_SIZE];
    TRY(read_all(fd, path, head, sizeof head));
    TRY(check_head(path, head, key));
    uint64_t count = muster_bytes_get(head + AT_COUNT, 4);
    if (count > MUSTER_REGISTERED_BUFFERS_MAX) {
        return refuse(path, "it claims to hold %" PRIu64 " buffers", count);
    }
    size_t size_bytes = (size_t)count * MUSTER_OUTLINE_SIZE;
    AUTO_FREE unsigned char *bytes = calloc(count + 1, MUSTER_OUTLINE_SIZE);
    AUTO_FREE struct muster_outline *outlines = calloc(count + 1, sizeof *outlines);
    if (bytes == NULL || outlines == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    TRY(read_all(fd, path, bytes, size_bytes));
    uLong crc = crc32(crc32(0, NULL, 0), head, sizeof head);
    TRY(check_checksum(fd, path, crc32(crc, bytes, (uInt)size_bytes), "its head"));
    if (muster_outlines_decode(bytes, size_bytes, (uint32_t)count, outlines) != MUSTER_OK) {
        return refuse(path, "its head cannot be read");
    }
    return check_layout(path, state, outlines, (uint32_t)count);
}

static muster_status read_buffer(int fd, const char *path,
                                 const struct muster_registered_buffer *buffer,
                                 unsigned char *ret_bytes)
{
    uLong crc = crc32(0, NULL, 0);
    for (size_t at = 0; at < buffer->size_bytes;) {
        size_t left = buffer->size_bytes - at;
        size_t piece = left < PIECE_BYTES ? left : PIECE_BYTES;
        TRY(read_all(fd, path, ret_bytes + at, piece));
        crc = crc32(crc, ret_bytes + at, (uInt)piece);
        at += piece;
    }
    char what[MUSTER_REGISTERED_BUFFER_NAME_SIZE + 16];
    (void)snprintf(what, sizeof what, "buffer \"%s\"", buffer->name);
    return check_checksum(fd, path, crc, what);
}

muster_status muster_spill_file_read(const struct muster_spill_place *place,
                                     const struct muster_state *state, struct muster_spill_key key,
                                     unsigned char *ret_bytes)
{
    struct spill_path path;
    name_file(place, key, &path);
    AUTO_CLOSE int fd = open(path.text, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return muster_error_errno(MUSTER_RETRY, "spill %s", path.text);
    }
    TRY(read_head(fd, path.text, state, key));
    for (uint32_t i = 0; i < state->count; i++) {
        const struct muster_registered_buffer *buffer = &state->buffers[i];
        TRY(read_buffer(fd, path.text, buffer, ret_bytes + buffer->offset_bytes));
    }
    unsigned char more;
    return read(fd, &more, 1) == 0 ? MUSTER_OK : refuse(path.text, "something follows the state");
}

/* Pruning -------------------------------------------------------------------------------------- */

/* Unfinished files of writers that have died. Others may be writing now, also on other hosts: what
 * was written to in the last hour stays. */
static void remove_unfinished(const struct muster_spill_place *place)
{
    enum { OLD_S = 3600 };
    DIR *folder = opendir(place->folder);
    if (folder == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        struct muster_spill_key key;
        const char *rest;
        struct stat status;
        if (entry->d_name[0] == '.' && parse_name(place, entry->d_name + 1, &key, &rest) &&
            strstr(rest, ".tmp") != NULL &&
            fstatat(dirfd(folder), entry->d_name, &status, 0) == 0 &&
            time(NULL) - status.st_mtime > OLD_S) {
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
        }
    }
    (void)closedir(folder);
}

void muster_spill_file_prune(const struct muster_spill_place *place, uint32_t keep)
{
    AUTO_FREE struct muster_spill_key *keys = calloc(MUSTER_SPILL_FILES_MAX, sizeof *keys);
    uint32_t count = 0;
    if (keys == NULL || muster_spill_file_list(place, keys, &count) != MUSTER_OK) {
        return;
    }
    for (uint32_t i = keep; i < count; i++) {
        struct spill_path path;
        name_file(place, keys[i], &path);
        (void)unlink(path.text);
    }
    remove_unfinished(place);
}
