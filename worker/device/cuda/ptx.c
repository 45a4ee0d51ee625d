/* The PTX that the build has made, as bytes of the library. */
#include "worker/device/cuda/ptx.h"

#include <stdlib.h>
#include <string.h>

#ifdef MUSTER_PTX
/* NOLINTNEXTLINE(hicpp-no-assembler): C has no other way to include a file as bytes */
__asm__(
    ".pushsection .rodata\n"
    "muster_ptx_text:\n"
    ".incbin \"" MUSTER_PTX
    "\"\n"
    ".byte 0\n"
    ".popsection\n");
extern const char muster_ptx_text[] __attribute__((visibility("hidden")));
#else
static const char muster_ptx_text[] = "";
#endif

static const char entry[] = ".visible .entry ";

bool muster_ptx_exists(void)
{
    return muster_ptx_text[0] != '\0';
}

/* Appends [from, to), or what there is until the end. Returns the end of the text, which is
 * terminated. */
static char *append(char *end, const char *from, const char *to)
{
    size_t size = to != NULL ? (size_t)(to - from) : strlen(from);
    char *after = mempcpy(end, from, size);
    *after = '\0';
    return after;
}

char *muster_ptx_of_type(const char *type_name)
{
    char *text = malloc(strlen(muster_ptx_text) + 1);
    size_t name_size = strlen(type_name);
    const char *at = strstr(muster_ptx_text, entry);
    if (text == NULL) {
        return NULL;
    }
    char *end = append(text, muster_ptx_text, at);
    while (at != NULL) {
        const char *name = at + strlen(entry);
        const char *next = strstr(name, entry);
        if (strncmp(name, type_name, name_size) == 0 && name[name_size] == '_') {
            end = append(end, at, next);
        }
        at = next;
    }
    return text;
}
