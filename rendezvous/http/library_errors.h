/*
 * What libmicrohttpd itself refuses, before a function of ours sees it: a head that is malformed or
 * too long, a broken chunk, another version of HTTP. It answers with a line of HTML, and has no
 * hook for that. But it queues such an answer as its users do, by MHD_queue_response(), which the
 * dynamic linker finds in this program first: an answer that no code of ours has queued becomes
 * JSON of the Connect protocol, and is counted.
 *
 * In a libmicrohttpd that is linked statically or to itself (-Bsymbolic) the HTML stays; a test
 * shows that Debian's is not.
 */
#ifndef MUSTER_RENDEZVOUS_HTTP_LIBRARY_ERRORS_H
#define MUSTER_RENDEZVOUS_HTTP_LIBRARY_ERRORS_H

#include <microhttpd.h>

/* Queues a response of ours. */
enum MHD_Result muster_http_queue_response(struct MHD_Connection *connection, unsigned http,
                                           struct MHD_Response *response);

#endif
