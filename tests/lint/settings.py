#!/usr/bin/env python3
"""Checks that each setting is documented and tested. Run in the top folder.

The variables of the environment that the code reads stand in the table of worker/SETTINGS.md, and no others do. A test
names each of them, and each option of each command.
"""
import glob
import re
import sys

TABLES = {"worker/cli/**/*.c": None, "worker/examples/**/*.c": "charlm", "rendezvous/musterd_options.c": "musterd"}
TABLE = re.compile(r"struct argp_option \w+\[\] = \{(.*?)^\};", re.S | re.M)
# {"name", 'k', ...} or MACRO("name", 'k', ...)
ROW = re.compile(r"[{(]\s*\"([a-z][a-z-]*)\",\s*('.'|\w+)")


def read(pattern):
    texts = {}
    for path in glob.glob(pattern, recursive=True):
        with open(path, encoding="utf-8", errors="replace") as file:
            texts[path] = file.read()
    return texts


def options():
    """(command, option, short form or None) of all commands."""
    for pattern, program in TABLES.items():
        for path, text in sorted(read(pattern).items()):
            command = program or "muster " + path.split("/")[2].removesuffix(".c")
            for table in TABLE.findall(text):
                for name, key in ROW.findall(table):
                    yield command, name, key[1] if key.startswith("'") else None


def is_named(command, name, short, tests):
    """Whether a test that speaks of the command names the option."""
    forms = [rf"--{name}(?![a-z-])"] + ([rf"[\s\"]-{short}(?![a-z-])"] if short else [])
    of_command = re.compile(rf"\b{command.split()[-1]}\b")
    return any(of_command.search(text) and any(re.search(form, text) for form in forms) for text in tests)


def main():
    code = "\n".join(text for top in ("worker", "rendezvous", "collectives", "elastic")
                     for kind in "ch" for text in read(f"{top}/**/*.{kind}").values())
    tests = [text for path, text in read("tests/**/*.*").items() if re.search(r"\.(c|h|sh)$", path)]
    page = "\n".join(read("worker/SETTINGS.md").values())
    in_code = set(re.findall(r"\"(MUSTER_[A-Z_]+)\"", code))
    on_page = {name for row in re.findall(r"^\| (`MUSTER_[^|]*)\|", page, re.M)
                for name in re.findall(r"MUSTER_[A-Z_]+", row)}
    problems = [f"{name} is read, but is not in the table of worker/SETTINGS.md" for name in in_code - on_page]
    problems += [f"{name} is in the table of worker/SETTINGS.md, but the code does not read it" for name in on_page - in_code]
    found = list(options())
    problems += [f"no test names {name}" for name in in_code
                 if not any(re.search(rf"{name}(?![A-Z_])", text) for text in tests)]
    problems += [f"no test of {command} names --{name}"
                 for command, name, short in found if not is_named(command, name, short, tests)]
    if len(in_code) < 20 or len(found) < 30:
        problems.append(f"only {len(in_code)} variables and {len(found)} options were seen: is this the source tree?")
    print("\n".join(sorted(problems)) if problems else
          f"{len(in_code)} variables and {len(found)} options were checked")
    return 1 if problems else 0


sys.exit(main())
