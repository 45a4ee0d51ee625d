/* What the pictures of all subcommands have in common: the document and its colours, text, the
 * steps of an axis, and a file that is written whole or not at all. */
#ifndef MUSTER_WORKER_CLI_SVG_H
#define MUSTER_WORKER_CLI_SVG_H

#include "worker/base/status.h"

#include <stdio.h>

struct muster_svg_document {
    double width, height;
    const char *style; /* rules beside the common ones (text, .paper, .middle, .right, .rule) */
    const char *dark_style; /* rules for readers who prefer a dark background */
};

/* The document up to its background. The caller ends it with "</svg>". */
void muster_svg_begin(FILE *out, const struct muster_svg_document *document);

/* One line of text of a class of the style sheet. */
void muster_svg_text(FILE *out, double x, double y, const char *style, const char *text);
/* The text itself, escaped for XML. */
void muster_svg_escape(FILE *out, const char *text);

/* 1, 2 or 5 times a power of ten, so that at most `steps` of them fit into the range, which is
 * more than 0. */
double muster_svg_axis_step(double range, int steps);

/* Draws into memory, then writes the file ("-": standard output): what cannot be drawn leaves a
 * file that is there as it is. The status is that of draw, or MUSTER_FATAL with "--svg PATH". */
typedef muster_status (*muster_svg_draw_function)(FILE *out, const void *argument);
MUSTER_CHECKED muster_status muster_svg_write(const char *path, muster_svg_draw_function draw,
                                              const void *argument);

#endif
