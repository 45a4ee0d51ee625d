"""Plays Horovod's workers over HTTP as they are on the wire: a new connection for each request, Host and
Content-Length only, 404 while a key is not there, three tries for any other status. Run by test_workers.sh with the
port of a musterd."""
import collections
import http.client
import json
import os
import random
import socket
import sys
import threading
import time
import urllib.request

PORT = int(sys.argv[1])
TRIES, PAUSE_S, POLL_S, LIMIT_S = 3, 0.5, 0.01, 60
ADDRESS_BYTES = 136
statuses = collections.Counter()


class Failed(Exception):
    pass


def exchange(data):
    """Sends raw bytes, and reads one response as Horovod's client does: it knows only this Content-Length."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=LIMIT_S) as connection:
        connection.sendall(data)
        reply = b""
        while b"\r\n\r\n" not in reply:
            piece = connection.recv(65536)
            if not piece:
                raise OSError(f"closed after {len(reply)} bytes")
            reply += piece
        head, _, body = reply.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        length = next((int(line[16:]) for line in lines if line.startswith(b"Content-Length: ")), None)
        while length is None or len(body) < length:
            piece = connection.recv(65536)
            if not piece:
                raise OSError(f"closed after {len(body)} bytes of {length}")
            body += piece
        return int(lines[0].split()[1]), body


def send(method, path, body=b""):
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    return exchange(head.encode() + body)


class Worker:
    """ADDR is 127.0.0.1:PORT/horovod/JOB.SECRET/WORKER, and a request goes to ADDR:PORT/SCOPE/KEY."""

    def __init__(self, prefix, host="a", local_rank=0):
        self.prefix, self.host, self.local_rank = prefix, host, local_rank

    def ask(self, method, scope, key, body=b""):
        for _ in range(TRIES):
            status, answer = send(method, f"{self.prefix}:{PORT}/{scope}/{key}", body)
            statuses[status] += 1
            if status in (200, 404):
                return status, answer
            time.sleep(PAUSE_S)
        raise Failed(f"{method} {self.prefix}/{scope}/{key}: {status} {answer}")

    def wait(self, scope, key):
        limit = time.monotonic() + LIMIT_S
        while True:
            status, answer = self.ask("GET", scope, key)
            if status == 200:
                return self.ask("GET", scope, key)[1]
            if time.monotonic() > limit:
                raise Failed(f"{scope}/{key} did not come")
            time.sleep(POLL_S)

    def meet(self, scope, rank, size, mark):
        """What a Gloo context does with its store; returns the marks of all ranks."""
        self.ask("PUT", scope, f"rank_{rank}", self.host.encode())
        for other in range(rank):
            self.ask("GET", scope, f"rank_{other}")
        address = mark.encode().ljust(ADDRESS_BYTES, b"\0")
        self.ask("PUT", scope, str(rank), address * (size - 1))
        marks = []
        for other in range(size):
            if other != rank:
                value = self.wait(scope, str(other))
                expect(len(value) == ADDRESS_BYTES * (size - 1), f"{len(value)} bytes of rank {other}")
                marks.append(value[:ADDRESS_BYTES].rstrip(b"\0").decode())
        self.ask("DELETE", scope, str(rank))
        return marks

    def init(self, ranks, mark):
        """All three scopes, as at hvd.init()."""
        rank, size, self.local_rank, local_size, cross_rank, cross_size = ranks
        for scope, own, count in (("global", rank, size), (f"local_{self.host}", self.local_rank, local_size),
                                  (f"cross_{self.local_rank}", cross_rank, cross_size)):
            marks = self.meet(scope, own, count, mark)
            expect(len(marks) == count - 1 and set(marks) <= {mark}, f"{scope}: {marks}, not {mark}")

    def reset(self):
        status, answer = self.ask("GET", "rank_and_size", f"{self.host}:{self.local_rank}")
        expect(status == 200, f"rank_and_size: {status}")
        return [int(word) for word in answer.decode("ascii").split(",")]


def expect(condition, text):
    if not condition:
        raise Failed(text)


def at_once(functions):
    """Runs functions in threads; a failure of any is raised here."""
    results, problems = [None] * len(functions), []

    def run(index, function):
        try:
            results[index] = function()
        except Exception as problem:  # any: it is raised below
            problems.append(problem)

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S * 2)
    expect(not any(thread.is_alive() for thread in threads), "somebody is still waiting")
    if problems:
        raise problems[0]
    return results


def places(hosts, slots):
    return [(host, [h * slots + s, hosts * slots, s, slots, h, hosts]) for h, host in
            enumerate(f"host-{i}.example.org" for i in range(hosts)) for s in range(slots)]


def static_ranks():
    """64 ranks of one job and 16 of another beside it, twice: hvd.init(), hvd.shutdown(), hvd.init()."""
    start = time.monotonic()
    jobs = [("big.s-1", places(8, 8)), ("small.s-2", places(4, 4))]
    for mark in ("first", "second"):
        at_once([lambda prefix=f"/horovod/{job}", host=host, ranks=ranks, job=job:
                 Worker(prefix, host).init(ranks, f"{job} {mark}") for job, slots in jobs for host, ranks in slots])
    expect(set(statuses) <= {200, 404}, f"statuses {statuses}")
    requests = sum(statuses.values())
    print(f"static: {requests} requests in {time.monotonic() - start:.1f} s")


def plan(job, text):
    status, answer = send("PUT", f"/horovod/{job}/muster/plan", text.encode())
    expect(status == 200, f"plan {text}: {status} {answer}")
    rows = [line.split() for line in answer.decode().splitlines()]
    first = max(i for i, row in enumerate(rows) if row[0] == "round")
    return {row[0]: ([int(word) for word in row[1].split(",")], row[2]) for row in rows[first + 1:]}


def elastic_ranks():
    """A launcher of 4 workers: one dies and is started again, a host comes, a host goes."""
    job, count = "elastic.s-3", iter(range(1000))

    def start(slots):
        workers = []
        for slot, (ranks, state) in slots.items():
            if state == "new":
                host, local_rank = slot.split(":")
                workers.append((Worker(f"/horovod/{job}/w{next(count)}", host, int(local_rank)), ranks))
        return workers

    started = start(plan(job, "a:2,b:2"))
    at_once([lambda pair=pair: pair[0].init(pair[1], "round 1") for pair in started])
    workers = [worker for worker, _ in started]

    def step(mark, newcomers):
        def survive(worker):
            ranks = worker.reset()
            if ranks[0] >= 0:
                worker.init(ranks, mark)
            return worker, ranks
        done = at_once([lambda w=w: survive(w) for w in workers] +
                       [lambda p=p: (p[0].init(p[1], mark), p)[1] for p in newcomers])
        going_on = [pair for pair in done if pair[1][0] >= 0]
        expect(sorted(ranks[0] for _, ranks in going_on) == list(range(len(going_on))), f"{mark}: {done}")
        return [worker for worker, _ in going_on]

    workers = step("the same again", [])
    dead = workers.pop(3)
    expect(send("DELETE", f"/horovod/{job}/rank_and_size/{dead.host}:{dead.local_rank}")[0] == 200, "exit")
    workers = step("one less", [])
    expect(len(workers) == 3, f"{len(workers)} workers")
    workers = step("one again", start(plan(job, "a:2,b:2")))
    workers = step("a host more", start(plan(job, "a:2,b:2,c:3")))
    expect(len(workers) == 7, f"{len(workers)} workers")
    start(plan(job, "c:3,b:1"))
    workers = step("hosts less", [])
    expect(sorted(worker.host for worker in workers) == ["b", "c", "c", "c"], "who is left")
    try:
        dead.ask("PUT", "global", "0", b"late")
        raise Failed("a late message was taken")
    except Failed as problem:
        expect("400" in str(problem), str(problem))
    expect(send("DELETE", f"/horovod/{job}/muster/plan")[0] == 200, "end")
    print("elastic: the same, one less, one again, a host more, hosts less")


def closed_connection():
    """A worker that dies while it waits no longer counts."""
    job = "closed.s-4"
    plan(job, "a:2")
    for rank in range(2):
        Worker(f"/horovod/{job}/w{rank}").ask("PUT", "global", f"rank_{rank}", b"a")

    def state_of(slot, wanted):
        limit = time.monotonic() + LIMIT_S
        while f"{slot} {wanted}\n" not in send("GET", f"/horovod/{job}/muster/plan")[1].decode():
            expect(time.monotonic() < limit, f"{slot} is not {wanted}")
            time.sleep(POLL_S)

    with socket.create_connection(("127.0.0.1", PORT), timeout=LIMIT_S) as connection:
        connection.sendall(f"GET /horovod/{job}/w0/rank_and_size/a:0 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        state_of("a:0 0,2,0,2,0,1", "asked")
    state_of("a:0 0,2,0,2,0,1", "living")


def python_client():
    """The Python part of Horovod uses urllib."""
    url = f"http://127.0.0.1:{PORT}/horovod/py.s:{PORT}/worker_addresses/a:0"
    value = b"gASVIQ==" * 100
    request = urllib.request.Request(url, data=value, method="PUT")
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        expect(reply.status == 200, f"PUT {reply.status}")
    with urllib.request.urlopen(url, timeout=LIMIT_S) as reply:
        expect(reply.read() == value, "the value")
        expect(reply.headers["Content-Type"] == "application/octet-stream", "its type")


def bad_input():
    good = "/horovod/bad.s/global/0"
    expect(send("PUT", good, b"x")[0] == 200, "PUT")
    for method, path, body, wanted in [
            ("GET", "/horovod/bad.s/global", b"", 400), ("GET", "/horovod/bad.other/global/0", b"", 401),
            ("PUT", "/horovod/bad.other/global/0", b"y", 401), ("DELETE", "/horovod/bad.other/global/0", b"", 401),
            ("POST", good, b"y", 405), ("PATCH", good, b"y", 405), ("PUT", good, b"y" * (256 * 1024 + 1), 413),
            ("PUT", good + "/more/parts", b"y", 400), ("GET", "/horovod/bad.s/%2fglobal/0", b"", 400),
            ("GET", "/horovod/bad.s/global/%00", b"", 400), ("GET", "/global/0", b"", 404),
            ("PUT", "/horovod/bad.s/muster/plan", b"\xff\0:1", 400)]:
        status, answer = send(method, path, body)
        expect(status == wanted, f"{method} {path}: {status}, not {wanted}")
        error = json.loads(answer)
        expect(error["code"] and "\n" not in error["message"] and "other" not in error["message"], str(error))
    expect(send("GET", good) == (200, b"x"), "nothing changed")
    expect(send("PUT", good, b"y" * (256 * 1024))[0] == 200, "the longest value")
    expect(len(send("GET", good)[1]) == 256 * 1024, "the longest value")
    seed = int(os.environ.get("MUSTER_SEED") or random.randrange(1 << 32))
    print(f"MUSTER_SEED={seed}")
    noise = random.Random(seed)
    for _ in range(300):
        path = "".join(noise.choice("/.:%aZ0_-?#&= \x7f\xe9") for _ in range(noise.randrange(60)))
        data = f"{noise.choice(['GET', 'PUT', 'DELETE'])} /horovod/{path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
        try:
            status, _ = exchange(data.encode("latin-1"))
            expect(200 <= status < 600 and status != 500, f"{status} for {path!r}")
        except (OSError, ValueError):
            pass  # libmicrohttpd closes the connection of what is no HTTP
    http.client.HTTPConnection("127.0.0.1", PORT, timeout=LIMIT_S).request("PUT", good, body=b"z")
    expect(send("GET", "/horovod/bad.s/none/0") == (404, b""), "it still serves")


for test in (static_ranks, elastic_ranks, closed_connection, python_client, bad_input):
    test()
