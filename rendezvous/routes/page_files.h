/* The files of rendezvous/page/, which CMake turns into arrays. They are not const because
 * libmicrohttpd takes buffers that are not; nobody writes to them. */
#ifndef MUSTER_RENDEZVOUS_ROUTES_PAGE_FILES_H
#define MUSTER_RENDEZVOUS_ROUTES_PAGE_FILES_H

#include <stddef.h>

extern char muster_page_html[], muster_page_css[], muster_page_js[];
extern const size_t muster_page_html_size, muster_page_css_size, muster_page_js_size;

#endif
