#!/usr/bin/env python3
"""Runs clang-tidy over files of ours with the flags they are compiled with, as many at a time as there are cores.

usage: tidy.py BUILD [--deep] [FILE...]    in the top folder; without files, over all but tests

The analyzer follows paths through a function until it has seen so many nodes; most of the time goes into the
few functions with many paths. NODES finds what is found early in a tenth of the time; --deep has no limit but
clang's own. A file that passed is not checked again while its text, its headers, its flags and the
configuration are the same (stamps in BUILD/tidy-stamps).
"""
import concurrent.futures
import glob
import hashlib
import json
import os
import shlex
import subprocess
import sys

NODES = 15000
TOPS = ("collectives", "elastic", "rendezvous", "worker")


def headers_of(build):
    """Object file -> the headers of ours that it was compiled from, as ninja has recorded them."""
    listing = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=False).stdout
    found, item = {}, None
    top = os.getcwd() + "/"
    for line in listing.splitlines():
        if line.startswith("    "):
            path = os.path.normpath(os.path.join(build, line.strip()))
            path = path[len(top):] if path.startswith(top) else path
            if not path.startswith("/"):
                found[item].append(path)
        elif ":" in line:
            item = line.split(":")[0]
            found[item] = []
    return found


def units_of(build):
    """Source file -> (flags, headers or None). What this machine does not compile is not among them."""
    headers = headers_of(build)
    units = {}
    with open(f"{build}/compile_commands.json", encoding="utf-8") as file:
        for entry in json.load(file):
            path = os.path.relpath(entry["file"])
            words = shlex.split(entry["command"])
            item = os.path.relpath(os.path.join(entry["directory"], words[words.index("-o") + 1]), build)
            units[path] = (entry["command"], headers.get(item))
    return units


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def stamp_of(path, flags, headers, common, known={}):
    if headers is None:
        headers = [header for top in TOPS for header in glob.glob(f"{top}/**/*.h", recursive=True)]
    digest = hashlib.sha256(common + flags.encode() + path.encode() + read(path))
    for header in sorted(headers):
        if header not in known:
            known[header] = hashlib.sha256(read(header)).digest()
        digest.update(known[header])
    return digest.hexdigest()[:32]


def check(build, path, arguments, stamp):
    if os.path.exists(stamp):
        return True, ""
    done = subprocess.run(["clang-tidy", "--quiet", "-p", build, *arguments, path], capture_output=True, text=True,
                          check=False)
    if done.returncode == 0:
        with open(stamp, "w", encoding="utf-8"):
            pass
    return done.returncode == 0, done.stdout


def main():
    words = sys.argv[1:]
    deep = "--deep" in words
    build, *wanted = [word for word in words if word != "--deep"]
    arguments = ["--extra-arg=-Wno-unknown-warning-option"]
    if not deep:
        words = ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={NODES}")
        arguments += [f"--extra-arg={word}" for word in words]
    units = units_of(build)
    ours = sorted(path for top in TOPS for path in glob.glob(f"{top}/**/*.c", recursive=True))
    paths = [path for path in ours if not wanted or path in wanted]
    common = read(".clang-tidy") + " ".join(arguments).encode()
    os.makedirs(f"{build}/tidy-stamps", exist_ok=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = []
        for path in paths:
            stamp = stamp_of(path, *units.get(path, ("", None)), common)
            runs.append(pool.submit(check, build, path, arguments, f"{build}/tidy-stamps/{stamp}"))
        for run in concurrent.futures.as_completed(runs):
            passed, text = run.result()
            failed += not passed
            if not passed:
                print(text, end="", flush=True)
    print(f"{len(paths)} files, {failed} with something to mend")
    return 1 if failed or not (paths or wanted) else 0


sys.exit(main())
