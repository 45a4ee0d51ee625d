#!/usr/bin/env python3
"""Names the tests that a change to files can break, one a line, as ctest knows them; "*" means all.

usage: changed.py BUILD FILE...    in the top folder; BUILD is a build folder that is up to date

- What is compiled: ninja knows which object files come from a file, the symbols of the object files say which
  programs contain them, and a test depends on the programs that it names, for example "/musterd".
- Anything else, and what is no longer there: the tests of the folder that mirrors its own, the tests that name
  it, and for tests/FOLDER/FILE those of FOLDER.
- The lints read all files, so a change can break each of them.
- How everything is built, and what is compiled into something else than programs: all tests.
"""
import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True  # the source folder stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lint"))
import objects  # noqa: E402

ALL = re.compile(r"(^|/)CMakeLists\.txt$|\.cmake$|^CMakePresets\.json$|^deploy/packages\.sh$|\.h\.in$")
STARTERS = ("tests/", "worker/cli/")  # code that starts programs
CODE = re.compile(r"\.[ch]$")


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def sources_of_objects(build):
    """Object file -> all files of ours that it was compiled from."""
    listing = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=False).stdout
    found, top = {}, os.getcwd() + "/"
    for line in listing.splitlines():
        if line.startswith("    "):
            path = os.path.normpath(os.path.join(os.path.abspath(build), line.strip()))
            if path.startswith(top):
                found[item].add(path[len(top):])
        elif ":" in line:
            item = line.split(":")[0]
            found[item] = set()
    return found


class Build:
    """The programs of a build, and the files that each is made of."""

    def __init__(self, build):
        self.compiled_from = sources_of_objects(build)
        self.objects = objects.read(build)
        self.path_of = {item: path for path, item in self.objects.items()}
        targets = {}
        for item in self.objects.values():
            targets.setdefault(item.target, []).append(item)
        self.programs = {name: items for name, items in targets.items()
                         if any("main" in item.defines for item in items)}
        in_programs = {item for items in self.programs.values() for item in items}
        self.library = objects.definers(item for item in self.objects.values() if item not in in_programs)
        names = [name for name in self.programs if not name.startswith("test_")]
        names = "|".join(map(re.escape, names))
        self.in_code = re.compile(rf"[/\"]({names})\"")  # the end of a string
        self.in_script = re.compile(rf"/({names})(?=[\"'\s);]|$)", re.M)
        self.known = {}

    def files_of(self, program):
        """All files that a program is made of, and those of the programs that it starts."""
        if program not in self.known:
            self.known[program] = files = set()
            started = set()
            for item in objects.linked(self.programs[program], self.library):
                files |= self.compiled_from.get(self.path_of[item], set()) | {item.source}
                if item.source.startswith(STARTERS):
                    started |= set(self.in_code.findall(read(item.source)))
            for other in started - {program}:
                files |= self.files_of(other)
        return self.known[program]


def folder_of(path):
    """The folder of tests that mirrors the folder of a file."""
    folder = os.path.dirname(path)
    return folder[len("tests/"):] if folder.startswith("tests/") else folder


def tests_of(build):
    listing = subprocess.run(["ctest", "--test-dir", build, "-C", "slow", "--show-only=json-v1"], capture_output=True,
                             text=True, check=True).stdout
    return {test["name"]: test.get("command", []) for test in json.loads(listing)["tests"]}


def script_of(command):
    """The text of a test that is a script, with the scripts beside it that it reads."""
    if not command or os.path.basename(command[0]) != "bash" or not command[1].endswith(".sh"):
        return None
    text = read(command[1])
    for other in re.findall(r"^(?:\.|source) .*?([a-z_]+\.sh)", text, re.M):
        text += read(os.path.join(os.path.dirname(command[1]), other))
    return text


def can_break(path, compiled, name, files, text):
    """Whether a change to `path` can break a test that depends on `files` and has the text of a script, or None."""
    if path in files:
        return True
    if compiled:
        return False
    folder = os.path.dirname(name)
    by_folder = text is not None or CODE.search(path) or path.startswith("tests/")
    name_in_text = path if path.endswith(".md") else os.path.basename(path)
    return (by_folder and folder_of(path) in (folder, name)) or (text is not None and name_in_text in text)


def main():
    folder, *changed = sys.argv[1:]
    if any(ALL.search(path) for path in changed):
        print("*")
        return 0
    build = Build(folder)
    if not build.objects:
        print(f"{folder} is no build", file=sys.stderr)
        return 1
    compiled_files = set().union(*build.compiled_from.values(), (item.source for item in build.objects.values()))
    in_programs = set().union(*(build.files_of(program) for program in build.programs))
    if any(path in compiled_files - in_programs for path in changed):
        print("*")
        return 0
    for name, command in sorted(tests_of(folder).items()):
        text = script_of(command)
        program = os.path.basename(command[0]) if command else ""
        files = set(build.files_of(program)) if program in build.programs else set()
        if text is not None:
            files |= {os.path.relpath(command[1])}
            for other in set(build.in_script.findall(text)):
                files |= build.files_of(other)
        if name.startswith("lint/") or any(can_break(path, path in compiled_files, name, files, text) for path in changed):
            print(name)
    return 0


sys.exit(main())
