# Writes OUTPUT, a C file with FOLDER's page.html, page.css and page.js as arrays.
set(text "/* Generated from ${FOLDER} by embed.cmake. */\n#include \"rendezvous/routes/page_files.h\"\n")
foreach(kind html css js)
    file(READ ${FOLDER}/page.${kind} bytes HEX)
    string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
    string(APPEND text "char muster_page_${kind}[] = {${bytes}};\n"
        "const size_t muster_page_${kind}_size = sizeof muster_page_${kind};\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
