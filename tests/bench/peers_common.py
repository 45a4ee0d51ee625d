"""What peers and verbs have in common: sizes, and running programs."""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "../..")
BUILD = os.path.join(TOP, "build/release/bin")
LAUNCH_TIMEOUT_S = 120
END_S = 10


class Failed(Exception):
    """A side cannot run; the text says why."""


def parse_size(text):
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f'"{text}" is not a size such as 4, 64K or 1M')
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def parse_sizes(text):
    return [parse_size(word) for word in text.split(",")]


def format_size(size):
    for shift, suffix in ((30, "G"), (20, "M"), (10, "K")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{suffix}"
    return str(size)


def end_group(process):
    """SIGTERM first: a launcher then ends its ranks, which are in other process groups."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                pass


def outputs_of(commands, environment=None):
    """Runs commands at the same time. Returns what each of them prints."""
    environment = {**os.environ, **(environment or {})}
    started = [subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, start_new_session=True)
               for command in commands]
    try:
        ends = [process.communicate(timeout=LAUNCH_TIMEOUT_S) for process in started]
    except subprocess.TimeoutExpired:
        raise Failed(f"did not end within {LAUNCH_TIMEOUT_S} s") from None
    finally:
        for process in started:
            end_group(process)
    for process, (_, errors) in zip(started, ends):
        if process.returncode != 0:
            lines = [line for line in errors.splitlines() if re.search(r"\w", line)]
            raise Failed(lines[0].strip() if lines else f"exit status {process.returncode}")
    return [out for out, _ in ends]


def run_together(commands, environment=None):
    """Runs commands at the same time. Returns the JSON object that one of them prints."""
    outs = outputs_of(commands, environment)
    lines = [line for out in outs for line in out.splitlines() if line.startswith("{")]
    if len(lines) != 1:
        raise Failed(f"printed {len(lines)} figures, not one")
    return json.loads(lines[0])


def compile_program(command):
    if shutil.which(command[0]) is None:
        raise Failed(f"there is no {command[0]}")
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise Failed(f"{command[0]}: {result.stderr.strip().splitlines()[0]}")
