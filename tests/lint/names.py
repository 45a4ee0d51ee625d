#!/usr/bin/env python3
"""Checks that a name which a header gives away has one meaning: struct, union and enum tags, enumerators and macros
of headers are defined nowhere else in the tree, and no two files have the same name. Run in the top folder."""
import collections
import os
import re
import sys

TOPS = ("collectives", "elastic", "rendezvous", "worker")
# How uthash is to fail is said before each inclusion of it.
REPEATED = re.compile(r"HASH_NONFATAL_OOM$")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\\\n|[^\n])*", re.M)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
TAG = re.compile(r"\b(?:struct|union|enum)\s+(?:__attribute__\s*\(\(.*?\)\)\s*)?(\w+)\s*\{")
ENUM = re.compile(r"\benum\b[^;{}()=]*\{([^{}]*)\}")
ENUMERATOR = re.compile(r"(?:^|,)\s*(\w+)")


def defined_in(text, header):
    """(kind, name) of what a file defines; macros only of headers."""
    text = COMMENT.sub(" ", text)
    if header:
        undefined = set(re.findall(r"^[ \t]*#[ \t]*undef[ \t]+(\w+)", text, re.M))
        yield from (("macro", name) for name in MACRO.findall(text) if name not in undefined)
    text = DIRECTIVE.sub("", text)
    yield from (("tag", name) for name in TAG.findall(text))
    for body in ENUM.findall(text):
        body = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", body))
        yield from (("enumerator", name) for name in ENUMERATOR.findall(body))


def main():
    files = sorted(os.path.join(folder, name) for top in TOPS for folder, _, names in os.walk(top) for name in names
                   if name.endswith((".c", ".h")))
    places, public = collections.defaultdict(list), set()
    for path in files:
        with open(path, encoding="utf-8") as file:
            found = set(defined_in(file.read(), path.endswith(".h")))
        for kind, name in found:
            places[name].append(f"{path} ({kind})")
        if path.endswith(".h"):
            public |= {name for _, name in found}
    wrong = [f"{name} is defined in {' and '.join(places[name])}" for name in sorted(public)
             if len(places[name]) > 1 and not REPEATED.match(name)]
    by_name = collections.defaultdict(list)
    for path in files:
        by_name[os.path.basename(path)].append(path)
    wrong += [f"file names must differ: {' and '.join(paths)}" for _, paths in sorted(by_name.items())
              if len(paths) > 1]
    if len(public) < 500:
        wrong.append(f"only {len(public)} names were seen: is this the source tree?")
    print("\n".join(wrong) if wrong else f"{len(public)} names of headers were checked")
    return 1 if wrong else 0


sys.exit(main())
