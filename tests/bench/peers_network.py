"""Four hosts on one machine for tests/bench/peers: network namespaces that are connected by a bridge,
with each link shaped in both directions, as `muster bench --shape` makes them for Muster.

The names of the namespaces are in a mount namespace of this command's own, so that the kernel removes
names, links and bridge when the command ends, however it ends.
"""
import ctypes
import json
import os
import subprocess
import sys
import time

HOSTS = 4
BURST_BYTES = 128 << 10
QUEUE_MS = 50
IPERF_S = 2
IPERF_RUNS = 3
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000


def address(host):
    """198.18.0.0/15 is reserved for benchmarks (RFC 2544)."""
    return f"198.18.1.{host + 1}"


def inside(host, argv):
    """The command on that host, with a host name of its own, by which Open MPI distinguishes hosts."""
    script = f'hostname host{host}; exec "$@"'
    return ["ip", "netns", "exec", f"host{host}", "unshare", "--uts", "sh", "-c", script, "sh", *argv]


def do(*argv):
    result = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        raise OSError(f"{' '.join(argv)}: {(result.stderr or 'it failed').strip().splitlines()[-1]}")
    return result.stdout


def enter_namespaces():
    """Moves this process into a mount and a network namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
        raise OSError(f"no namespaces: {os.strerror(ctypes.get_errno())}: run it as root")
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        raise OSError(f"no mounts of our own: {os.strerror(ctypes.get_errno())}")
    os.makedirs("/run/netns", exist_ok=True)
    do("mount", "-t", "tmpfs", "none", "/run/netns")


def choose_congestion_control(host):
    """As muster bench --shape: cubic, or reno if the namespace may not choose cubic."""
    setting = "/proc/sys/net/ipv4/tcp_congestion_control"
    do("ip", "netns", "exec", f"host{host}", "sh", "-c",
       f"echo cubic >{setting} || echo reno >{setting} || true")


def steer_flows(*inside):
    """Steers each flow to one core, as muster bench --shape does; for devices that are made later."""
    mask = f"{sum(1 << core for core in os.sched_getaffinity(0)):x}"
    groups = [mask[max(0, end - 8):end] for end in range(len(mask), 0, -8)]
    setting = "/proc/sys/net/core/rps_default_mask"
    try:
        do(*inside, "sh", "-c", f"echo {','.join(reversed(groups))} >{setting}")
    except OSError as error:
        print(f"peers: packets of a connection may arrive out of order: {error}", file=sys.stderr)


def make(rate):
    """Makes the hosts. Raises OSError, which says what is missing."""
    enter_namespaces()
    steer_flows()
    do("ip", "link", "set", "lo", "up")
    do("ip", "link", "add", "bridge", "type", "bridge")
    do("ip", "link", "set", "bridge", "up")
    shape = ["root", "tbf", "rate", rate, "burst", str(BURST_BYTES), "latency", f"{QUEUE_MS}ms"]
    for host in range(HOSTS):
        name = f"host{host}"
        do("ip", "netns", "add", name)
        steer_flows("ip", "netns", "exec", name)
        do("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        do("ip", "link", "set", name, "master", "bridge", "up")
        do("ip", "-n", name, "link", "set", "lo", "up")
        do("ip", "-n", name, "address", "add", f"{address(host)}/24", "dev", "eth0")
        do("ip", "-n", name, "link", "set", "eth0", "up")
        do("tc", "qdisc", "add", "dev", name, *shape)
        do("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", *shape)
        choose_congestion_control(host)


def iperf_bits():
    """The rate of one link in bits a second: the best of several runs of iperf3."""
    return max(iperf_once() for _ in range(IPERF_RUNS))


def iperf_once():
    server = subprocess.Popen(["ip", "netns", "exec", "host1", "iperf3", "-s", "-1"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for attempt in range(50):
            try:
                out = do("ip", "netns", "exec", "host0", "iperf3", "-J", "-t", str(IPERF_S), "-c", address(1))
                return json.loads(out)["end"]["sum_received"]["bits_per_second"]
            except (OSError, KeyError):
                if attempt == 49:
                    raise
                time.sleep(0.05)  # the server is not listening yet
    finally:
        server.kill()
        server.wait()
