#!/usr/bin/env python3
"""Checks which files may include which, and that no files depend on each other in a circle.

Run by test_layers.sh in the top folder; an argument names a build folder, whose object files then
show which file calls which.
"""
import collections
import os
import re
import sys

sys.dont_write_bytecode = True  # the source folder stays clean
import objects  # noqa: E402

CORE = "worker/muster.h worker/base/status.h worker/base/cleanup.h"
FLOOR = "worker/muster.h worker/base/ worker/trace/ worker/memory/"
# A subcommand uses what all of them share, never another subcommand.
CLI = FLOOR + " " + " ".join(f"worker/cli/{name}.h" for name in ("cli", "output", "print", "report", "service", "svg"))

# Folder -> what its files may include besides files of the same folder, as prefixes. The longest folder that
# a file is in counts. A new folder needs a row.
RULES = {
    # call.c and request.c need the names of algorithms
    "collectives/call/": CORE + " collectives/algorithms/algorithm.h",
    "collectives/reduce/": CORE + " collectives/call/",
    "collectives/schedule/": CORE + " collectives/call/",
    "collectives/algorithms/": CORE + " collectives/call/ collectives/schedule/",
    "collectives/check/": CORE + " collectives/call/ collectives/schedule/",
    "collectives/simulate/": CORE + " collectives/call/ collectives/schedule/ collectives/algorithms/algorithm.h"
                             " collectives/select/cost.h collectives/select/host_memory.h",
    "collectives/select/": CORE + " worker/base/statistics.h collectives/call/ collectives/schedule/ collectives/algorithms/algorithm.h"
                           " collectives/simulate/simulate.h",
    "collectives/draw/": CORE + " collectives/call/ collectives/schedule/ collectives/check/",
    "elastic/membership/": CORE + " worker/base/epoch.h worker/base/random.h",
    "elastic/messages/": CORE + " elastic/membership/membership.h elastic/membership/snapshot.h",
    "elastic/horovod/": CORE,
    "elastic/verdicts/": CORE,
    "rendezvous/calls/": "worker/muster.h worker/base/",
    "rendezvous/store/": "worker/muster.h worker/base/ rendezvous/calls/call_files.h",
    "rendezvous/store/etcd/": "worker/muster.h worker/base/ elastic/messages/base64.h rendezvous/store/store.h rendezvous/calls/",
    "rendezvous/service/": "worker/muster.h worker/base/ elastic/membership/ elastic/messages/messages.h"
                           " rendezvous/store/store.h",
    "rendezvous/routes/": "worker/muster.h worker/base/ elastic/membership/membership.h elastic/messages/messages.h"
                          " rendezvous/service/",
    "rendezvous/coding/": CORE + " elastic/messages/base64.h",
    "rendezvous/horovod/": "worker/muster.h worker/base/ elastic/horovod/ elastic/membership/membership.h"
                           " elastic/messages/messages.h rendezvous/service/held_requests.h rendezvous/service/rpc_call.h"
                           " rendezvous/service/clock_thread.h",
    "rendezvous/http/": "worker/muster.h worker/base/ elastic/messages/ rendezvous/service/musterd_service.h"
                        " rendezvous/service/held_requests.h rendezvous/routes/rpc.h rendezvous/routes/status_paths.h"
                        " rendezvous/horovod/horovod.h rendezvous/coding/ rendezvous/calls/",
    "rendezvous/": "worker/muster.h worker/base/ rendezvous/calls/call_files.h rendezvous/store/store.h rendezvous/service/musterd_service.h"
                   " rendezvous/http/ rendezvous/horovod/horovod.h",
    "worker/base/": "worker/muster.h",
    "worker/trace/": "worker/muster.h worker/base/",
    "worker/memory/": "worker/muster.h worker/base/",
    "worker/device/": FLOOR + " collectives/call/ collectives/reduce/ collectives/select/host_memory.h",
    "worker/fabric/": FLOOR + " worker/device/devices.h collectives/call/call.h collectives/call/range_list.h",
    "worker/executor/": FLOOR + " worker/device/devices.h worker/fabric/fabric.h collectives/call/ collectives/schedule/"
                        " collectives/reduce/",
    "worker/context/": FLOOR + " worker/device/ worker/fabric/fabric.h worker/executor/executor.h worker/executor/executor_group.h"
                       " worker/executor/progress_engine.h collectives/",
    "worker/communicator/": FLOOR + " worker/fabric/fabric.h worker/executor/executor.h"
                            " worker/executor/progress_engine.h worker/context/context.h collectives/",
    "worker/engine/agree/": CORE + " worker/base/array.h worker/base/bytes.h collectives/call/",
    "worker/engine/": FLOOR + " worker/device/devices.h worker/engine/agree/ collectives/call/",
    "worker/session/": FLOOR + " worker/device/devices.h worker/fabric/fabric.h worker/context/context.h"
                       " worker/engine/engine.h worker/engine/tensor_check.h"
                       " worker/communicator/ elastic/messages/messages.h collectives/",
    "worker/sampler/": CORE,
    "worker/cli/": CORE + " worker/base/clock.h worker/base/epoch.h worker/base/option_parse.h elastic/messages/messages.h worker/session/rendezvous_client.h"
                   " worker/session/stored_figures.h",
    "worker/cli/run/": CLI + " elastic/ worker/session/rendezvous_client.h worker/session/slot_lock.h",
    "worker/cli/job/": CLI + " elastic/messages/messages.h worker/session/rendezvous_client.h"
                       " worker/session/stored_figures.h",
    "worker/cli/bench/": CLI + " worker/fabric/fabric.h worker/context/context.h worker/communicator/"
                         " worker/device/devices.h"
                         " worker/session/stored_figures.h collectives/",
    "worker/cli/plan/": CLI + " collectives/",
    "worker/cli/timeline/": CLI,
    "worker/examples/": "muster.h",
    "worker/muster.h": "muster_collectives.h muster_data.h muster_engine.h muster_messages.h muster_operations.h muster_values.h",
    "worker/muster_collectives.h": "",
    "worker/muster_data.h": "",
    "worker/muster_engine.h": "",
    "worker/muster_messages.h": "muster_operations.h",
    "worker/muster_operations.h": "",
    "worker/muster_values.h": "",
}
# Pure: what they decide can be tested and replayed, because time and randomness come in as arguments.
PURE = ("collectives/", "elastic/", "worker/sampler/", "worker/engine/agree/", "worker/cli/run/launch_policy.")
# What would make them impure: sockets, threads, clocks.
IMPURE = re.compile(r"^#include <(pthread|threads|time|sys/time|sys/socket|netinet/.*|sys/epoll|poll|unistd|fcntl|"
                    r"signal|stdatomic|curl/.*|microhttpd|sqlite3)\.?h?>", re.M)
INCLUDE = re.compile(r'^ *# *include +"([^"]+)"', re.M)
# Circles that are still there; none may be added.
STILL = []
problems = []


def sources():
    for top in ("collectives", "elastic", "rendezvous", "worker"):
        for folder, _, names in os.walk(top):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.join(folder, name)


def rule_of(path):
    folders = [folder for folder in RULES if path.startswith(folder)]
    return max(folders, key=len) if folders else None


def check_includes(path, text):
    folder = rule_of(path)
    if folder is None:
        problems.append(f"{path}: its folder has no row in tests/lint/layers.py")
        return []
    included = INCLUDE.findall(text)
    for name in included:
        allowed = RULES[folder].split()
        if rule_of(name) != folder and not any(name.startswith(prefix) for prefix in allowed):
            problems.append(f"{path} includes {name}, which its layer may not use")
        if name.endswith("_parts.h") and os.path.dirname(name) != os.path.dirname(path):
            problems.append(f"{path} includes {name}, which is private to its folder")
    if path.startswith(PURE):
        for line in IMPURE.finditer(text):
            problems.append(f"{path} is pure: {line.group(0)}")
    if path.startswith("elastic/membership/") and "<jansson.h>" in text:
        problems.append(f"{path}: only elastic/messages speaks JSON")
    return included


def calls_of(build):
    """Source file -> source files that define what it uses, read from the object files of a build."""
    found = [item for item in objects.read(build).values() if not item.source.startswith("tests/")]
    defines = {name: item.source for item in found for name in item.defines - {"main"}}
    return {item.source: {defines[name] for name in item.uses if name in defines} for item in found}


def circles(arrows):
    """The strongly connected groups of more than one unit (Tarjan)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(unit):
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        on_stack.add(unit)
        for target in arrows.get(unit, ()):
            if target not in index:
                visit(target)
                low[unit] = min(low[unit], low[target])
            elif target in on_stack:
                low[unit] = min(low[unit], index[target])
        if low[unit] == index[unit]:
            group = []
            while not group or group[-1] != unit:
                group.append(stack.pop())
                on_stack.discard(group[-1])
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10000)
    for unit in sorted(arrows):
        if unit not in index:
            visit(unit)
    return found


def main():
    arrows = collections.defaultdict(set)
    count = 0
    for path in sources():
        with open(path, encoding="utf-8") as file:
            included = check_includes(path, file.read())
        count += len(included)
        if path.endswith(".h"):
            arrows[path].update(included)
    build = sys.argv[1] if len(sys.argv) > 1 else None
    for unit, targets in (calls_of(build) if build else {}).items():
        arrows[unit].update(targets)
    for unit, targets in arrows.items():
        targets.discard(unit)
    for group in circles(arrows):
        folders = {os.path.dirname(unit) for unit in group}
        if folders <= {folder.rstrip("/") for folder in STILL}:
            continue
        if len(folders) > 1 or len(group) > 2:
            problems.append(f"files depend on each other in a circle: {' '.join(group)}")
    if count < 20:
        problems.append(f"only {count} includes were seen: is this the source tree?")
    print("\n".join(problems) if problems else f"{count} includes keep to the layers")
    return 1 if problems else 0


sys.exit(main())
