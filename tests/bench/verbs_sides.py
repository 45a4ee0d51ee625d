#!/usr/bin/env python3
"""The sides of tests/bench/verbs: measures each side of one part once, on the machine with the RDMA devices.

    verbs_sides.py JSON     prints one object a figure: {"side", "bytes", "value"}, or {"side", "bytes", "failed"}

verbs fills JSON in: part, ranks, devices, gid, sizes, sides, turn, and the paths of the programs.
"""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the source folder stays clean
from peers_common import Failed, end_group, outputs_of, run_together

LISTEN_S = 20
LATENCY_BYTES = 8
LATENCY_CALLS = 2000
STREAM_BYTES = 512 << 20  # of all streams together
STREAM_MESSAGES_MIN = 5  # perftest needs as many
MESSAGE_MOST = 8 << 20  # the largest message of Soft-RoCE
# Up to a size in bytes: the number of timed calls.
ITERATIONS = [(1 << 10, LATENCY_CALLS), (1 << 20, 20), (16 << 20, 5), (1 << 60, 3)]
PEER_LIMIT_S = 10  # a slow peer makes fewer calls
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "UCX_LOG_LEVEL": "info"}


def iterations_of(size):
    return next(count for most, count in ITERATIONS if size <= most)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_listening(port):
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as lines:
            if any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines):
                return True
    return False


def wait_for(server, port):
    end = time.monotonic() + LISTEN_S
    while not is_listening(port):
        if server.poll() is not None or time.monotonic() > end:
            raise Failed(f"{server.args[0]}: the server did not start")
        time.sleep(0.02)  # the server prints nothing when it listens


def perftest(program, arguments, devices, pairs):
    """Runs pairs of server and client at the same time. Returns the last line of figures of each client."""
    servers, clients = [], []
    try:
        for pair in range(pairs):
            here, there = (devices[(2 * pair + end) % len(devices)] for end in (0, 1))
            port = free_port()
            command = [program, *arguments, "-p", str(port)]
            servers.append(subprocess.Popen([*command, "-d", here], stdin=subprocess.DEVNULL, start_new_session=True,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            wait_for(servers[-1], port)
            clients.append([*command, "-d", there, "127.0.0.1"])
        return [figures_in(out) for out in outputs_of(clients)]
    finally:
        for server in servers:
            end_group(server)


def figures_in(out):
    rows = [line.split() for line in out.splitlines() if re.fullmatch(r"[\d.\s]*\d[\d.\s]*", line)]
    if not rows:
        raise Failed("printed no figures")
    return [float(word) for word in rows[-1]]


def write_rate(request, size):
    """MB/s of all streams of ib_write_bw together."""
    both_ways = request["part"] == "allreduce"
    streams = request["ranks"] if both_ways else 1
    message = min(size, MESSAGE_MOST)
    count = max(STREAM_MESSAGES_MIN, STREAM_BYTES // (message * streams))
    rows = perftest("ib_write_bw", ["-s", str(message), "-n", str(count)] + ["-b"] * both_ways, request["devices"],
                    (streams + 1) // 2)
    if min(row[3] for row in rows) == 0:
        raise Failed("a stream carried nothing")
    return sum(row[3] for row in rows) * (1 << 20) / 1e6  # its MB are MiB


def latency(program):
    """The median of one direction, in us."""
    def run(request, size):
        arguments = ["-s", str(size), "-n", str(LATENCY_CALLS)]
        return perftest(program, arguments, request["devices"], 1)[0][4]
    return run


def exchange(request, size):
    """The median of exchanges without Muster, in us."""
    ends = [request["devices"][end % len(request["devices"])] for end in (0, 1)]
    return run_together([[request["verbs_exchange"], *ends, str(size), str(LATENCY_CALLS)]])["p50_us"]


def muster(collective):
    """The median of calls, in us."""
    def run(request, size):
        command = [request["muster"], "bench", collective, "-n", str(request["ranks"]), "--transport", "verbs",
                   "--devices", ",".join(request["devices"]), "--bytes", str(size),
                   "--iterations", str(iterations_of(size)), "--json", *request["muster_options"]]
        return run_together([command])["p50_us"]
    return run


def openmpi(request, size):
    """The median of calls, in us. The ranks may use only the device."""
    command = ["mpiexec.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ucx",
               "--mca", "mpi_yield_when_idle", "1", "-x", "UCX_TLS=rc,self"]
    for rank in range(request["ranks"]):
        device = request["devices"][rank % len(request["devices"])]
        command += [":"] * (rank > 0) + ["-n", "1", "-x", f"UCX_NET_DEVICES={device}:1", request["peer_mpi"],
                                         "allreduce", str(size), str(iterations_of(size)), str(PEER_LIMIT_S)]
    return run_together([command], MPI_ENVIRONMENT)["p50_us"]


def gloo(request, size):
    """The median of calls, in us."""
    with tempfile.TemporaryDirectory() as store:
        return run_together([
            [request["peer_gloo"], "halving_doubling", str(size), str(iterations_of(size)), str(PEER_LIMIT_S),
             str(rank), str(request["ranks"]), f"verbs:{request['devices'][rank % len(request['devices'])]}:{request['gid']}",
             store] for rank in range(request["ranks"])])["p50_us"]


# The sides of each part, in the order of the first round.
SIDES = {
    "stream": {"ib_write_bw": write_rate, "muster": muster("broadcast")},
    "latency": {"ib_send_lat": latency("ib_send_lat"), "ib_write_lat": latency("ib_write_lat"),
                "exchange": exchange, "muster": muster("allreduce"), "gloo": gloo, "openmpi": openmpi},
    "allreduce": {"ib_write_bw": write_rate, "muster": muster("allreduce"), "gloo": gloo, "openmpi": openmpi},
}


def main():
    request = json.loads(sys.argv[1])
    sides = [(name, run) for name, run in SIDES[request["part"]].items() if name in request["sides"]]
    start = request["turn"] % len(sides)
    for size in request["sizes"]:
        for name, run in sides[start:] + sides[:start]:
            figure = {"side": name, "bytes": size}
            try:
                figure["value"] = run(request, size)
            except Failed as why:
                figure["failed"] = str(why)
            print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
