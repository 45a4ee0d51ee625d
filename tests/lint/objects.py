"""What the object files of a build define and use: the arrows between source files, and what each program links."""
import glob
import os
import re
import subprocess


class Object:
    """One compiled source file: its path, the target it belongs to, and its global symbols."""

    def __init__(self, source, target):
        self.source, self.target = source, target
        self.defines, self.uses = set(), set()


def read(build):
    """Path of the object file below `build` -> Object."""
    found = {}
    for item in glob.glob("**/*.o", root_dir=build, recursive=True):
        parts = re.match(r"(.*?)/?CMakeFiles/([^/]+)\.dir/(.*\.c)\.o$", item)
        source = parts and os.path.normpath(os.path.join(parts.group(1), parts.group(3)))
        if parts and os.path.exists(source):
            found[item] = Object(source, parts.group(2))
    if not found:
        return found
    listing = subprocess.run(["nm", "-gA", *found], cwd=build, capture_output=True, text=True, check=False).stdout
    for line in listing.splitlines():
        item, _, fields = line.partition(":")
        *_, kind, name = fields.split()
        (found[item].uses if kind in "Uw" else found[item].defines).add(name)
    return found


def definers(objects):
    """Symbol -> the objects that define it."""
    found = {}
    for item in objects:
        for name in item.defines:
            found.setdefault(name, []).append(item)
    return found


def linked(start, library):
    """The objects that a linker takes for a program: those of `start`, and of the library whatever they need."""
    seen, waiting = set(), list(start)
    while waiting:
        item = waiting.pop()
        if item not in seen:
            seen.add(item)
            for name in item.uses - {"main"}:
                waiting += library.get(name, ())
    return seen
