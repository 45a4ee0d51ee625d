/* What the pictures of all subcommands have in common. */
#include "worker/cli/svg.h"

#include "worker/base/cleanup.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

void muster_svg_begin(FILE *out, const struct muster_svg_document *document)
{
    double width = document->width;
    double height = document->height;
    (void)fprintf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                  "viewBox=\"0 0 %.0f %.0f\">\n"
                  "<style>\n"
                  "text{font:12px 'DejaVu Sans',Verdana,Helvetica,sans-serif;fill:#24292f}\n"
                  ".middle{text-anchor:middle}.right{text-anchor:end}\n"
                  ".paper{fill:#fff}.rule{stroke:#57606a;stroke-opacity:.25;fill:none}\n"
                  "%s"
                  "@media (prefers-color-scheme:dark){\n"
                  "text{fill:#e6edf3}.paper{fill:#0d1117}.rule{stroke:#9198a1}\n"
                  "%s}\n"
                  "</style>\n"
                  "<rect class=\"paper\" width=\"%.0f\" height=\"%.0f\" rx=\"8\"/>\n",
                  width, height, width, height, document->style, document->dark_style, width,
                  height);
}

void muster_svg_text(FILE *out, double x, double y, const char *style, const char *text)
{
    (void)fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", style, x, y);
    muster_svg_escape(out, text);
    (void)fprintf(out, "</text>\n");
}

void muster_svg_escape(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        const char *escaped = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : "&gt;";
        if (strchr("&<>", *text) != NULL) {
            (void)fputs(escaped, out);
        } else {
            (void)fputc(*text, out);
        }
    }
}

double muster_svg_axis_step(double range, int steps)
{
    static const double factors[] = {1, 2, 5, 10};
    double least = range / steps;
    double power = pow(10, floor(log10(least)));
    size_t i = 0;
    while (i < 3 && factors[i] * power < least) {
        i++;
    }
    return factors[i] * power;
}

static muster_status write_file(const char *path, const char *text, size_t size)
{
    bool to_output = strcmp(path, "-") == 0;
    FILE *out = to_output ? stdout : fopen(path, "we");
    bool written = out != NULL && fwrite(text, 1, size, out) == size;
    if (out != NULL) { /* a full disk may show only here */
        written = (to_output ? fflush(out) : fclose(out)) == 0 && written;
    }
    return written ? MUSTER_OK : muster_error_errno(MUSTER_FATAL, "--svg %s", path);
}

muster_status muster_svg_write(const char *path, muster_svg_draw_function draw,
                               const void *argument)
{
    AUTO_FREE char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (memory == NULL) {
        return muster_error_errno(MUSTER_FATAL, "--svg %s", path);
    }
    muster_status status = draw(memory, argument);
    bool drawn = ferror(memory) == 0;
    drawn = fclose(memory) == 0 && drawn;
    if (status != MUSTER_OK) {
        return status;
    }
    return drawn ? write_file(path, text, size)
                 : muster_error_set(MUSTER_FATAL, "--svg %s: no memory for the picture", path);
}
