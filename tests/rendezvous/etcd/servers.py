#!/usr/bin/env python3
"""Three musterd that share an etcd cluster of three members. Servers and members of the cluster are killed, frozen and
ended while clients write; what was answered must be there, and no answer may come from an old state.

usage: servers.py BIN   where BIN/musterd and BIN/muster are
"""
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

BIN = sys.argv[1]
LEASE_MS = 2000
WAIT_S = 60  # a bound on hangs
folder = tempfile.mkdtemp(prefix="muster-etcd-")
processes = []


def spawn(*arguments, name):
    log = open(os.path.join(folder, name + ".log"), "ab")
    process = subprocess.Popen(arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    processes.append(process)
    return process


def wait_for(what, check):
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited for {WAIT_S} s: {what}")


def free_ports(count):
    """Ports that nobody has now. They are bound again at once, by processes that cannot choose their own."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    def __init__(self):
        self.ports = free_ports(6)
        self.members = [self.start(i) for i in range(3)]
        wait_for("etcd", lambda: all(self.status(i) for i in range(3)))

    def start(self, i):
        peers = ",".join(f"m{k}=http://127.0.0.1:{self.ports[3 + k]}" for k in range(3))
        client, peer = f"http://127.0.0.1:{self.ports[i]}", f"http://127.0.0.1:{self.ports[3 + i]}"
        return spawn("etcd", "--name", f"m{i}", "--data-dir", os.path.join(folder, f"m{i}"),
                     "--listen-client-urls", client, "--advertise-client-urls", client,
                     "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                     "--initial-cluster", peers, "--heartbeat-interval", "50", "--election-timeout", "500",
                     name=f"etcd{i}")

    def status(self, i):
        """What member i says of the cluster, or None; with a leader only."""
        answer = post(self.ports[i], "/v3/maintenance/status", {}, 1)
        return answer[1] if answer and answer[1].get("leader") else None

    def leader(self):
        for i in range(3):
            status = self.status(i) if self.members[i].poll() is None else None
            if status and status["leader"] == status["header"]["member_id"]:
                return i
        return None

    def place(self):
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in self.ports[:3]) + "/test"


def post(port, path, body, timeout_s=5):
    """(HTTP status, JSON, headers), or None if there is no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.headers
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


class Server:
    def __init__(self, cluster, number):
        self.cluster, self.number, self.port = cluster, number, 0
        self.start()

    def start(self, *extra):
        port_file = os.path.join(folder, f"port{self.number}")
        if os.path.exists(port_file):
            os.unlink(port_file)
        self.process = spawn(f"{BIN}/musterd", "--listen", f"127.0.0.1:{self.port}", "--port-file", port_file,
                             "--store", self.cluster.place(), "--server-lease-ms", str(LEASE_MS), "--settle-ms", "50", "--lease-ms", "600000",
                             "--log", "info", *extra, name=f"musterd{self.number}")
        wait_for("musterd", lambda: os.path.exists(port_file) and os.path.getsize(port_file) > 0)
        with open(port_file, encoding="ascii") as file:
            self.port = int(file.read())

    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, method, timeout_s=5, **body):
        return post(self.port, f"/muster.v1.Rendezvous/{method}", body, timeout_s)


def ask_any(servers, method, **body):
    """Sends the same request to one server after the other until one answers it."""
    def attempt():
        for server in random.sample(servers, len(servers)):
            answer = server.ask(method, **body)
            if answer and answer[0] == 200:
                return answer[1] or {"empty": True}
            assert answer is None or answer[1].get("code") in ("unavailable", "canceled"), answer
        return None
    return wait_for(method, attempt)


class Writer(threading.Thread):
    """Adds 1 to a number of its own job, with an id each, and reads it back: the sum is the number of answers."""
    def __init__(self, servers, job, seed):
        super().__init__()
        self.servers, self.job, self.random = servers, job, random.Random(seed)
        self.sum, self.error, self.stopping = 0, None, False

    def run(self):
        try:
            while not self.stopping:
                name = str(self.random.getrandbits(64)).zfill(20)[:12]
                request = f"00000000-0000-4000-8000-{name}"
                answer = ask_any(self.servers, "Add", job=self.job, key="sum", amount="1", requestId=request)
                self.sum += 1
                assert int(answer["value"]) == self.sum, f"{self.job}: {answer} after {self.sum} Adds"
        except AssertionError as error:
            self.error = error


def form(servers, job, member="1", generation=0):
    answer = ask_any(servers, "Join", job=job, host="h", minSize=1, maxSize=1, generation=str(generation),
                     member=f"00000000-0000-4000-8000-{member.zfill(12)}", addresses=["tcp://127.0.0.1:1"])
    while "formed" not in answer:
        answer = ask_any(servers, "Join", job=job, host="h", minSize=1, maxSize=1, generation=str(generation),
                         member=f"00000000-0000-4000-8000-{member.zfill(12)}", addresses=["tcp://127.0.0.1:1"])
    return int(answer["formed"]["generation"])


def owner_of(servers, job):
    """The server that answers for the job by itself."""
    def look():
        for server in servers:
            answer = server.ask("GetJob", job=job) if server.process.poll() is None else None
            if answer and answer[0] == 200 and answer[2]["Muster-Owner"] is None:
                return server
        return None
    return wait_for(f"the owner of {job}", look)


def forwarding(servers):
    generation = form(servers[:1], "one")
    assert servers[0].ask("Put", job="one", key="k", value="AAEC")[0] == 200
    for server in servers[1:]:
        status, answer, headers = server.ask("Get", job="one", key="k")
        assert (status, answer["value"], headers["Muster-Owner"]) == (200, "AAEC", servers[0].url()), answer
        assert server.ask("Get", job="one", key="none")[0] == 404
        assert server.ask("GetJob", job="nobody")[0] == 404
    assert form(servers[1:], "one", generation=generation) == generation + 1
    # A server ends: another one has its jobs at once.
    servers[0].process.send_signal(signal.SIGTERM)
    assert servers[0].process.wait(WAIT_S) == 0
    assert ask_any(servers[1:], "Get", job="one", key="k")["value"] == "AAEC"
    servers[0].start()


def frozen(servers):
    """An owner that is stopped for longer than its lease answers nothing from what it knew."""
    owner = owner_of(servers, "frozen")
    others = [server for server in servers if server is not owner]
    ask_any(servers, "Put", job="frozen", key="k", value="AAAA")
    answers = []
    watch = threading.Thread(target=lambda: answers.append(owner.ask("Wait", timeout_s=WAIT_S, job="frozen",
                                                                     key="later", timeoutMs=30000)))
    watch.start()
    time.sleep(0.1)
    owner.process.send_signal(signal.SIGSTOP)
    ask_any(others, "Put", job="frozen", key="k", value="BBBB")
    owner.process.send_signal(signal.SIGCONT)
    answer = owner.ask("Get", job="frozen", key="k")
    assert answer[0] == 503 or answer[1]["value"] == "BBBB", answer
    watch.join(WAIT_S)
    assert answers and answers[0][0] == 503, answers
    assert ask_any([owner], "Get", job="frozen", key="k")["value"] == "BBBB"


def cut_off(cluster, servers):
    """Two of three members are frozen: no server can say anything, and each says so."""
    stopped = cluster.members[:2]
    for member in stopped:
        member.send_signal(signal.SIGSTOP)
    def refuses(server):
        answer = server.ask("Get", job="one", key="k")
        return answer is not None and answer[0] == 503 and "store etcd://" in answer[1]["message"]
    for server in servers:
        wait_for("a refusal", lambda server=server: refuses(server))
    connection = http.client.HTTPConnection("127.0.0.1", servers[0].port, timeout=5)
    connection.request("GET", "/readyz")
    assert connection.getresponse().status == 503
    for member in stopped:
        member.send_signal(signal.SIGCONT)
    assert ask_any(servers, "Get", job="one", key="k")["value"] == "AAEC"


def main():
    seed = int(os.environ.get("MUSTER_SEED", time.time_ns() % 1000000))
    print("seed", seed, flush=True)
    random.seed(seed)
    began = time.monotonic()
    def say(what):
        print(f"{time.monotonic() - began:6.2f} s  {what}", flush=True)
    cluster = Cluster()
    servers = [Server(cluster, i) for i in range(3)]
    say("three servers")
    forwarding(servers)
    say("forwarded, and handed over")
    generation = form(servers, "frozen")
    for i in range(3):
        form([servers[i]], f"w{i}")
    writers = [Writer(servers, f"w{i}", seed + i) for i in range(3)]
    for writer in writers:
        writer.start()
    frozen(servers)
    say("an owner was frozen")
    owner_of(servers, "w0").kill()
    killed = [server for server in servers if server.process.poll() is not None]
    say("an owner was killed")
    leader = wait_for("a leader", lambda: (cluster.leader() or 0) + 1) - 1
    cluster.members[leader].kill()
    ask_any([server for server in servers if server not in killed], "Put", job="one", key="k", value="AAEC")
    say("the leader of the cluster was killed")
    cluster.members[leader] = cluster.start(leader)
    killed[0].start()
    wait_for("etcd", lambda: all(cluster.status(i) for i in range(3)))
    generation = form(servers, "frozen", generation=generation)
    assert generation & 0xFFFFFFFF == 2, generation
    cut_off(cluster, servers)
    say("the cluster was cut in two")
    for writer in writers:
        writer.stopping = True
    for writer in writers:
        writer.join(WAIT_S)
        assert writer.error is None and not writer.is_alive(), writer.error
        answer = ask_any(servers, "Get", job=writer.job, key="sum")
        say(f"{writer.job}: {writer.sum} Adds")
    urls = ",".join(server.url() for server in servers)
    subprocess.run([f"{BIN}/muster", "run", "-n", "3", "--rendezvous", "http://127.0.0.1:1," + urls, "--job", "sum",
                    "--", f"{BIN}/hello_allreduce"], check=True, timeout=WAIT_S, stdout=subprocess.DEVNULL)
    for server in servers:
        server.process.terminate()
    for server in servers:
        assert server.process.wait(WAIT_S) == 0
    say("done")


try:
    main()
except BaseException:
    for name in sorted(os.listdir(folder)):
        if name.startswith("musterd") and name.endswith(".log"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                print(f"== {name}", *file.readlines()[-15:], sep="\n")
    raise
finally:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
