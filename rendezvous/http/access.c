/* The list of tokens: read from a file and the environment, looked up in constant time. */
#include "rendezvous/http/access.h"

#include "elastic/messages/messages.h"
#include "rendezvous/routes/rpc.h"
#include "worker/base/cleanup.h"
#include "worker/base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_SIZE = MUSTER_TOKEN_MAX_BYTES + 64 };

static const struct {
    const char *name, *variable;
    unsigned rights;
} roles[] = {
    {"worker", "MUSTERD_WORKER_TOKEN", MUSTER_RIGHT_WORK},
    {"viewer", "MUSTERD_VIEWER_TOKEN", MUSTER_RIGHT_LIST | MUSTER_RIGHT_SEE},
    {"admin", "MUSTERD_ADMIN_TOKEN",
     MUSTER_RIGHT_WORK | MUSTER_RIGHT_LIST | MUSTER_RIGHT_SEE | MUSTER_RIGHT_RULE},
};
enum { ROLES = sizeof roles / sizeof roles[0] };

struct access_token {
    unsigned rights;
    char text[MUSTER_TOKEN_MAX_BYTES + 1]; /* zeros behind it */
};

struct access_list {
    struct access_token *tokens; /* [MUSTER_SERVER_TOKENS_MAX], owned */
    size_t count;
};

struct muster_access {
    char *path; /* owned; NULL: no file */
    pthread_mutex_t mutex;
    struct access_list list; /* under the lock */
};

static void finish_list(struct access_list *list)
{
    if (list->tokens != NULL) {
        explicit_bzero(list->tokens, MUSTER_SERVER_TOKENS_MAX * sizeof *list->tokens);
    }
    free(list->tokens);
}

/* where: for the error text. */
static muster_status add_token(struct access_list *list, unsigned rights, const char *text,
                               const char *where)
{
    size_t length = strlen(text);
    bool printable = true;
    for (size_t i = 0; i < length; i++) {
        printable = printable && text[i] > ' ' && text[i] <= '~';
    }
    if (!printable || length < MUSTER_SERVER_TOKEN_MIN_BYTES || length > MUSTER_TOKEN_MAX_BYTES) {
        return muster_error_set(MUSTER_INVALID,
                                "%s: a token of %zu bytes; use %d to %d printable characters "
                                "without spaces",
                                where, length, MUSTER_SERVER_TOKEN_MIN_BYTES,
                                MUSTER_TOKEN_MAX_BYTES);
    }
    if (list->count == MUSTER_SERVER_TOKENS_MAX) {
        return muster_error_set(MUSTER_INVALID, "%s: more than %d tokens", where,
                                MUSTER_SERVER_TOKENS_MAX);
    }
    struct access_token *token = &list->tokens[list->count++];
    token->rights = rights;
    memcpy(token->text, text, length);
    return MUSTER_OK;
}

static muster_status add_line(struct access_list *list, char *line, const char *where)
{
    static const char blanks[] = " \t\r\n";
    char *rest = NULL;
    const char *role = strtok_r(line, blanks, &rest);
    if (role == NULL || role[0] == '#') {
        return MUSTER_OK;
    }
    const char *token = strtok_r(NULL, blanks, &rest);
    for (size_t i = 0; i < ROLES; i++) {
        if (strcmp(roles[i].name, role) == 0 && token != NULL &&
            strtok_r(NULL, blanks, &rest) == NULL) {
            return add_token(list, roles[i].rights, token, where);
        }
    }
    /* The line is not repeated: it may be a token without its role. */
    return muster_error_set(MUSTER_INVALID,
                            "%s: a line is \"worker TOKEN\", \"viewer TOKEN\" or \"admin TOKEN\"",
                            where);
}

static muster_status add_file(struct access_list *list, const char *path)
{
    char line[LINE_SIZE];
    char where[512];
    unsigned number = 0;
    muster_status status = MUSTER_OK;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return muster_error_errno(MUSTER_INVALID, "tokens %s", path);
    }
    while (status == MUSTER_OK && fgets(line, sizeof line, file) != NULL) {
        number++;
        (void)snprintf(where, sizeof where, "tokens %s, line %u", path, number);
        bool whole = strchr(line, '\n') != NULL || feof(file) != 0;
        status = whole ? add_line(list, line, where)
                       : muster_error_set(MUSTER_INVALID, "%s: longer than %d bytes", where,
                                          LINE_SIZE - 2);
    }
    if (status == MUSTER_OK && ferror(file) != 0) {
        status = muster_error_errno(MUSTER_INVALID, "tokens %s", path);
    }
    (void)fclose(file);
    explicit_bzero(line, sizeof line);
    if (status == MUSTER_OK && list->count == 0) {
        return muster_error_set(MUSTER_INVALID, "tokens %s: it has no token", path);
    }
    return status;
}

static muster_status read_list(const char *path, struct access_list *ret_list)
{
    struct access_list list = {.tokens = calloc(MUSTER_SERVER_TOKENS_MAX, sizeof *list.tokens)};
    if (list.tokens == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_status status = path != NULL ? add_file(&list, path) : MUSTER_OK;
    for (size_t i = 0; i < ROLES && status == MUSTER_OK; i++) {
        const char *token = getenv(roles[i].variable);
        if (token != NULL && token[0] != '\0') {
            status = add_token(&list, roles[i].rights, token, roles[i].variable);
        }
    }
    if (status != MUSTER_OK) {
        finish_list(&list);
        return status;
    }
    *ret_list = list;
    return MUSTER_OK;
}

muster_status muster_access_create(const char *path, struct muster_access **ret_access)
{
    struct access_list list = {0};
    TRY(read_list(path, &list));
    struct muster_access *access = calloc(1, sizeof *access);
    if (access != NULL && path != NULL) {
        access->path = strdup(path);
    }
    if (access == NULL || (path != NULL && access->path == NULL)) {
        free(access);
        finish_list(&list);
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    access->list = list;
    muster_mutex_init(&access->mutex);
    *ret_access = access;
    return MUSTER_OK;
}

void muster_access_destroy(struct muster_access *access)
{
    if (access != NULL) {
        finish_list(&access->list);
        (void)pthread_mutex_destroy(&access->mutex);
        free(access->path);
        free(access);
    }
}

muster_status muster_access_reload(struct muster_access *access)
{
    struct access_list list = {0};
    TRY(read_list(access->path, &list));
    muster_mutex_lock(&access->mutex);
    struct access_list before = access->list;
    access->list = list;
    muster_mutex_unlock(&access->mutex);
    finish_list(&before);
    return MUSTER_OK;
}

bool muster_access_guards(struct muster_access *access)
{
    AUTO_LOCK(&access->mutex);
    return access->list.count > 0;
}

/* Compares with all tokens to their ends, so that the time shows neither how much of a token is
 * right nor which. */
unsigned muster_access_rights(struct muster_access *access, const char *token)
{
    char sent[MUSTER_TOKEN_MAX_BYTES + 1] = "";
    unsigned rights = 0;
    size_t length = strlen(token);
    if (length >= sizeof sent) {
        return 0;
    }
    memcpy(sent, token, length + 1);
    AUTO_LOCK(&access->mutex);
    for (size_t i = 0; i < access->list.count; i++) {
        const struct access_token *known = &access->list.tokens[i];
        unsigned differs = 0;
        for (size_t at = 0; at < sizeof sent; at++) {
            differs |= (unsigned)((unsigned char)sent[at] ^ (unsigned char)known->text[at]);
        }
        rights |= differs == 0 ? known->rights : 0;
    }
    return rights;
}
