"""An etcd cluster, musterd that share it, and what tests ask of them."""
import base64
import http.client
import json
import os
import random
import shutil
import signal
import socket
import ssl
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
    """tls: (authority, certificate, key) of the members, who then want a certificate from clients, too."""
    def __init__(self, count=3, name="m", tls=None):
        self.count, self.name, self.tls = count, name, tls
        self.ports = free_ports(2 * count)
        self.members = [self.start(i) for i in range(count)]
        wait_for("etcd", lambda: all(self.status(i) for i in range(count)))

    def start(self, i):
        name, scheme = self.name, "https" if self.tls else "http"
        peers = ",".join(f"{name}{k}=http://127.0.0.1:{self.ports[self.count + k]}" for k in range(self.count))
        client, peer = f"{scheme}://127.0.0.1:{self.ports[i]}", f"http://127.0.0.1:{self.ports[self.count + i]}"
        secured = ("--client-cert-auth", "--trusted-ca-file", self.tls[0], "--cert-file", self.tls[1],
                   "--key-file", self.tls[2]) if self.tls else ()
        return spawn("etcd", "--name", f"{name}{i}", "--data-dir", os.path.join(folder, f"{name}{i}"), *secured,
                     "--listen-client-urls", client, "--advertise-client-urls", client,
                     "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                     "--initial-cluster", peers, "--heartbeat-interval", "50", "--election-timeout", "500",
                     name=f"etcd-{name}{i}")

    def status(self, i):
        """What member i says of the cluster, or None; with a leader only."""
        answer = self.post("maintenance/status", {}, i, 1)
        return answer[1] if answer and answer[1].get("leader") else None

    def post(self, method, body, i=0, timeout_s=5):
        return post(self.ports[i], "/v3/" + method, body, timeout_s, self.tls)

    def pairs(self, prefix):
        """All (key, value) that begin so."""
        last = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        answer = self.post("kv/range", {"key": encode(prefix), "range_end": encode(last)})
        return [(base64.b64decode(pair["key"]).decode(), base64.b64decode(pair.get("value", "")))
                for pair in answer[1].get("kvs", [])]

    def leader(self):
        for i in range(self.count):
            status = self.status(i) if self.members[i].poll() is None else None
            if status and status["leader"] == status["header"]["member_id"]:
                return i
        return None

    def place(self):
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in self.ports[:self.count]) + "/test"


def encode(text):
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def connect(port, timeout_s, tls):
    if tls is None:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    context = ssl.create_default_context(cafile=tls[0])
    context.load_cert_chain(tls[1], tls[2])
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout_s, context=context)


def post(port, path, body, timeout_s=5, tls=None):
    """(HTTP status, JSON, headers), or None if there is no answer."""
    connection = connect(port, timeout_s, tls)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.headers
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


class Server:
    """place: where it finds the cluster, if not at the members themselves; more: further options."""
    def __init__(self, cluster, number, place=None, more=()):
        self.cluster, self.number, self.port = cluster, number, 0
        self.place, self.more = place or cluster.place(), more
        self.start()

    def start(self, *extra):
        port_file = os.path.join(folder, f"port{self.number}")
        if os.path.exists(port_file):
            os.unlink(port_file)
        self.process = spawn(f"{BIN}/musterd", "--listen", f"127.0.0.1:{self.port}", "--port-file", port_file,
                             "--store", self.place, "--server-lease-ms", str(LEASE_MS),
                             *self.more, "--settle-ms", "50", "--lease-ms", "600000",
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


class Proxy:
    """Between a musterd and one member of the cluster. Cut: nothing goes through, and no connection ends."""
    def __init__(self, target):
        self.target, self.going = target, threading.Event()
        self.going.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            here, _ = self.listener.accept()
            try:
                there = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                here.close()
                continue
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=self.pump, args=(source, sink), daemon=True).start()

    def pump(self, source, sink):
        try:
            while data := source.recv(65536):
                self.going.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def run(main):
    """Runs a test and puts away what it has started; shows the servers' logs if it fails."""
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
