"""The binary interface of libmuster as lines of text, compared with the list that is kept in abi.txt.

    struct NAME BYTES / field NAME.FIELD OFFSET BYTES / value NAME NUMBER / function PROTOTYPE

The header decides what there is, the compiler where it lies, and the shared library what it exports. Run in the top
folder: python3 tests/install/abi.py LIBRARY [LIST] [--extend]. --extend appends what is new to the list. It changes no
line but the size of a struct that begins with its size, which may grow.
"""
import os
import re
import subprocess
import sys
import tempfile

COMPILER = os.environ.get("CC", "cc")


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def header():
    """What our headers say, without macros, comments and the headers of the system."""
    kept, ours = [], False
    for line in run(COMPILER, "-E", "-I", ".", "-", text='#include "worker/muster.h"\n').splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            ours = "muster" in os.path.basename(marker.group(1))
        elif ours:
            kept.append(line)
    return re.sub(r"__attribute__ *\(\([^()]*(\([^()]*\))?[^()]*\)\)", "", " ".join(kept))


def without_names(prototype):
    """Parameters may be renamed: only their types count."""
    start, _, parameters = prototype.partition("(")
    types = [re.sub(r"(?<=[\s*])\w+((?:\[\])?)$", r"\1", each.strip()).strip() if " " in each.strip() else each.strip()
             for each in parameters.rstrip(") ").split(",")]
    return f"{start.strip()}({', '.join(types)})"


def functions(text):
    """Name -> prototype."""
    text = re.sub(r"\{[^{}]*\}", "", text)  # the bodies of structs and enums
    found = {}
    for statement in text.split(";"):
        match = re.match(r"^(?!\s*typedef)[\w\s*]*?\b(muster_\w+) ?\(.*\)\s*$", re.sub(r"\s+", " ", statement).strip())
        if match:
            found[match.group(1)] = without_names(re.sub(r"\s+", " ", statement).strip())
    return found


def layout(text):
    """Lines about structs and values, printed by a program."""
    prints = []
    for name, body in re.findall(r"typedef struct (\w+) *\{(.*?)\}", text):
        prints.append(f'printf("struct {name} %zu\\n", sizeof(struct {name}));')
        for fields in filter(str.strip, body.split(";")):
            for field in re.findall(r"(\w+) *(?:\[[^\]]*\])?(?:,|$)", fields.strip()):
                prints.append(f'printf("field {name}.{field} %zu %zu\\n", offsetof(struct {name}, {field}), '
                              f"sizeof(((struct {name} *)0)->{field}));")
    for body in re.findall(r"enum *\w* *\{(.*?)\}", text):
        for value in re.findall(r"(MUSTER_\w+)", body):
            prints.append(f'printf("value {value} %lld\\n", (long long){value});')
    program = '#include "worker/muster.h"\n#include <stdio.h>\nint main(void)\n{\n' + "\n".join(prints) + "\nreturn 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "layout")
        run(COMPILER, "-I", ".", "-x", "c", "-o", path, "-", text=program)
        return run(path).splitlines()


def exported(library):
    return {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}


def key(line):
    """What a line is about: "struct NAME", "function NAME"."""
    return re.sub(r"^(function) .*?\b(muster_\w+)\(.*", r"\1 \2", line) if line.startswith("function") \
        else " ".join(line.split()[:2])


def main():
    library, *names = [word for word in sys.argv[1:] if word != "--extend"]
    path, extend = (names or ["tests/install/abi.txt"])[0], "--extend" in sys.argv
    text = header()
    declared = functions(text)
    present = layout(text) + [f"function {each}" for each in declared.values()]
    problems = [f"{name} is exported, and muster.h does not declare it" for name in exported(library) - set(declared)]
    problems += [f"{name} is declared in muster.h, and is not exported" for name in set(declared) - exported(library)]
    with open(path, encoding="utf-8") as file:
        kept = file.read().splitlines()
    now = {key(line): line for line in present}
    before = {key(line): line for line in kept}
    for what, line in before.items():
        # A struct that begins with its size may grow: older programs say how much of it they have.
        grows = line.startswith("struct") and now.get(what) and f"field {line.split()[1]}.size" in before and \
            int(now[what].split()[2]) > int(line.split()[2])
        if what not in now:
            problems.append(f"gone, which breaks programs: {line}")
        elif now[what] != line and not grows:
            problems.append(f"changed, which breaks programs: {line}  ->  {now[what]}")
        elif grows and not extend:
            problems.append(f"larger, which the list does not say yet: {now[what]}")
    new = [line for line in present if key(line) not in before]
    if extend and not problems:
        lines = [now[what] for what in before] + new
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        print(f"{path}: {len(new)} lines are new")
        return 0
    problems += [f"new, and not in the list: {line}" for line in new]
    if len(declared) < 30 or len(present) < 100:
        problems.append(f"only {len(declared)} functions and {len(present)} lines were seen: is this the source tree?")
    print("\n".join(sorted(problems)) if problems else f"{len(present)} lines are as in {path}")
    if any(line.startswith(("new", "larger")) for line in problems):
        print(f"If that is wanted: python3 tests/install/abi.py {library} --extend")
    return 1 if problems else 0


sys.exit(main())
