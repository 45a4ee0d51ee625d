/* The paths that people and their tools read: the page with its files, metrics, health. */
#include "rendezvous/routes/page_files.h"
#include "rendezvous/routes/status_paths.h"
#include "rendezvous/service/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HTTP_OK = 200, HTTP_NO_MEMORY = 500, HTTP_UNAVAILABLE = 503 };

static const struct {
    const char *path, *content_type;
} paths[MUSTER_STATUS_PATHS] = {
    [MUSTER_STATUS_PAGE] = {"/", "text/html; charset=utf-8"},
    [MUSTER_STATUS_SCRIPT] = {"/page.js", "text/javascript; charset=utf-8"},
    [MUSTER_STATUS_STYLE] = {"/page.css", "text/css; charset=utf-8"},
    [MUSTER_STATUS_METRICS] = {"/metrics", "text/plain; version=0.0.4; charset=utf-8"},
    [MUSTER_STATUS_HEALTHZ] = {"/healthz", "text/plain; charset=utf-8"},
    [MUSTER_STATUS_READYZ] = {"/readyz", "text/plain; charset=utf-8"},
};

bool muster_status_find(const char *path, enum muster_status_path *ret_path)
{
    for (int i = 0; i < MUSTER_STATUS_PATHS; i++) {
        if (strcmp(paths[i].path, path) == 0) {
            *ret_path = (enum muster_status_path)i;
            return true;
        }
    }
    return false;
}

static void set_text(struct muster_status_response *response, unsigned http, char *text,
                     size_t size_bytes)
{
    response->http = http;
    response->text = text;
    response->size_bytes = size_bytes;
}

/* Takes the text; NULL: no memory. */
static void set_owned(struct muster_status_response *response, unsigned http, char *text)
{
    static char no_memory[] = "no memory\n";
    if (text == NULL) {
        set_text(response, HTTP_NO_MEMORY, no_memory, sizeof no_memory - 1);
    } else {
        set_text(response, http, text, strlen(text));
        response->owned = text;
    }
}

static void set_readiness(struct muster_service *service, struct muster_status_response *response)
{
    static char ready[] = "ready\n";
    static char ending[] = "not ready: musterd is ending\n";
    if (atomic_load(&service->quiesced)) {
        set_text(response, HTTP_UNAVAILABLE, ending, sizeof ending - 1);
    } else if (muster_readiness_check(&service->readiness, service->store) == MUSTER_OK) {
        set_text(response, HTTP_OK, ready, sizeof ready - 1);
    } else {
        char *text = NULL;
        if (asprintf(&text, "not ready: %s\n", muster_last_error()) < 0) {
            text = NULL;
        }
        set_owned(response, HTTP_UNAVAILABLE, text);
    }
}

struct muster_status_response muster_status_get(struct muster_service *service,
                                                enum muster_status_path path,
                                                const struct muster_status_sockets *sockets)
{
    static char healthy[] = "ok\n";
    struct muster_status_response response = {.content_type = paths[path].content_type};
    switch (path) {
    case MUSTER_STATUS_PAGE:
        set_text(&response, HTTP_OK, muster_page_html, muster_page_html_size);
        break;
    case MUSTER_STATUS_SCRIPT:
        set_text(&response, HTTP_OK, muster_page_js, muster_page_js_size);
        break;
    case MUSTER_STATUS_STYLE:
        set_text(&response, HTTP_OK, muster_page_css, muster_page_css_size);
        break;
    case MUSTER_STATUS_METRICS:
        set_owned(&response, HTTP_OK, muster_metrics_format(service, sockets));
        break;
    case MUSTER_STATUS_READYZ:
        set_readiness(service, &response);
        break;
    default:
        set_text(&response, HTTP_OK, healthy, sizeof healthy - 1);
        break;
    }
    return response;
}

void muster_status_count_limited(struct muster_service *service, bool failures)
{
    (void)atomic_fetch_add(&service->metrics.limited[failures ? 1 : 0], 1);
}

void muster_status_count_refusal(struct muster_service *service, enum muster_rpc_code code)
{
    (void)atomic_fetch_add(&service->metrics.refusals[code], 1);
}
