#!/usr/bin/env python3
"""musterd with an etcd cluster of one member: one server is cut off from it alone, what is stored is damaged, a large
job is compacted, and the connections are https.

usage: faults.py BIN   where BIN/musterd is
"""
import os
import random
import signal
import subprocess
import threading
import time

from cluster import BIN, WAIT_S, Cluster, Proxy, Server, Writer, ask_any, encode, folder, form, owner_of, run, spawn, wait_for

EVENTS = 4096 + 200  # more than musterd collects before it compacts


def cut_off_alone(cluster, seed):
    """The owner does not reach etcd, and everybody reaches the owner. It refuses, another one takes over, and who asks
    any of them hears of one history."""
    proxy = Proxy(cluster.ports[0])
    alone = Server(cluster, 0, place=f"etcd://127.0.0.1:{proxy.port}/test")
    others = [Server(cluster, i) for i in (1, 2)]
    servers = [alone] + others
    form([alone], "cut")
    assert owner_of(servers, "cut") is alone
    writer = Writer(servers, "cut", seed)
    writer.start()
    wait_for("the first Adds", lambda: writer.sum > 3)
    held = []
    watch = threading.Thread(target=lambda: held.append(alone.ask("Wait", timeout_s=WAIT_S, job="cut", key="never", timeoutMs=30000)))
    watch.start()
    proxy.going.clear()
    wait_for("another owner", lambda: owner_of(others, "cut"))
    before = writer.sum
    for method, more in (("Get", {"key": "sum"}), ("GetJob", {}), ("Put", {"key": "k", "value": "AAAA"})):
        answer = alone.ask(method, job="cut", **more)
        assert answer and answer[0] == 503, (method, answer)
    watch.join(WAIT_S)
    assert held and held[0][0] == 503, held
    wait_for("Adds at the new owner", lambda: writer.sum > before + 3)
    proxy.going.set()
    wait_for("the server is back", lambda: alone.ask("Get", job="cut", key="sum")[0] == 200)
    writer.stopping = True
    writer.join(WAIT_S)
    assert writer.error is None and not writer.is_alive(), writer.error
    return servers


def move(servers, job):
    """Its owner ends, and another one has the job. Returns the others."""
    owner = owner_of(servers, job)
    owner.process.send_signal(signal.SIGTERM)
    assert owner.process.wait(WAIT_S) == 0
    others = [server for server in servers if server is not owner]
    owner_of(others, job)
    return others


def edit(cluster, key, value):
    wrong = value[:-2] + bytes([value[-2] ^ 1]) + value[-1:]
    assert cluster.post("kv/put", {"key": encode(key), "value": encode(wrong)})[0] == 200


def damaged(cluster, servers):
    """A value with an edited byte: its job is refused by name, all others are served."""
    for job, folder_of in (("event", "data/event/event/"), ("head", "job/head"), ("value", "data/value/value/")):
        form(servers, job)
        ask_any(servers, "Put", job=job, key="k", value="AAEC")
        owner = owner_of(servers, job)
        owner.process.send_signal(signal.SIGSTOP)
        edit(cluster, *cluster.pairs("test/" + folder_of)[0])
        owner.process.kill()
        owner.process.wait()
        others = [server for server in servers if server is not owner]
        def refuses(server, job=job):
            answer = server.ask("GetJob", job=job)
            return answer and answer[0] == 503 and "End the job" in answer[1]["message"] and answer[1]["message"]
        print("  ", wait_for(f"a refusal of {job}", lambda: next(filter(None, map(refuses, others)), None)), flush=True)
        assert ask_any(others, "Get", job="cut", key="sum")
        owner.start()
        wait_for(f"the end of {job}", lambda job=job: any((server.ask("EndJob", job=job, why="damaged") or (0,))[0] == 200
                                                         for server in servers))
        form(servers, job)


def compacted(cluster, servers):
    """Events become a snapshot, and what they have led to is the same at the next owner."""
    generation = form(servers, "large")
    owner = owner_of(servers, "large")
    def resize(count):
        for _ in range(count):
            assert owner.ask("Resize", timeout_s=WAIT_S, job="large", targetSize=1)[0] == 200
    threads = [threading.Thread(target=resize, args=(EVENTS // 8,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for("a snapshot", lambda: cluster.pairs("test/data/large/snapshot/"))
    wait_for("that events go", lambda: sum(value.count(b"\n") for _, value in cluster.pairs("test/data/large/event/")) < EVENTS // 2)
    def shown(answer):
        job = dict(answer["job"], nowMs=0)
        return dict(job, members=[dict(member, silentMs=0) for member in job["members"]])
    before = shown(owner.ask("GetJob", job="large")[1])
    others = move(servers, "large")
    after = shown(ask_any(others, "GetJob", job="large"))
    assert before == after and int(after["resizes"]) == EVENTS // 8 * 8, (before, after)
    assert form(others, "large", generation=generation) > generation


def certificate(name, authority=None):
    """NAME.pem and NAME.key; without an authority, one that signs others. A member's gateway shows the member its own
    certificate as a client."""
    def openssl(*arguments):
        subprocess.run(("openssl",) + arguments, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", name + ".key")
    if authority is None:
        openssl("req", "-x509", "-days", "2", *key, "-out", name + ".pem")
    else:
        with open(os.path.join(folder, name + ".ext"), "w", encoding="ascii") as file:
            file.write("extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n")
        openssl("req", *key, "-out", name + ".csr")
        openssl("x509", "-req", "-in", name + ".csr", "-CA", authority + ".pem", "-CAkey", authority + ".key",
                "-CAcreateserial", "-days", "2", "-extfile", name + ".ext", "-out", name + ".pem")
    return os.path.join(folder, name + ".pem"), os.path.join(folder, name + ".key")


def secured():
    """Members that want a certificate of ours get it, and one of strangers is not believed."""
    authority = certificate("ours")[0]
    member, own = certificate("member", "ours"), certificate("musterd", "ours")
    theirs = certificate("theirs")[0]
    cluster = Cluster(1, "t", (authority,) + member)
    shows = ("--etcd-certificate", own[0], "--etcd-key", own[1])
    servers = [Server(cluster, i, more=("--etcd-authority", authority) + shows) for i in (5, 6)]
    form(servers[:1], "one")
    assert servers[1].ask("Put", job="one", key="k", value="AAEC")[0] == 200
    servers[0].process.send_signal(signal.SIGTERM)
    assert servers[0].process.wait(WAIT_S) == 0
    assert ask_any(servers[1:], "Get", job="one", key="k")["value"] == "AAEC"
    for number, wrong, word in ((7, ("--etcd-authority", theirs) + shows, "certificate"), (8, ("--etcd-authority", authority), "")):
        process = spawn(f"{BIN}/musterd", "--listen", "127.0.0.1:0", "--store", cluster.place(), "--server-lease-ms", "2000",
                        *wrong, name=f"refused{number}")
        assert process.wait(WAIT_S) == 1
        with open(os.path.join(folder, f"refused{number}.log"), encoding="utf-8") as file:
            text = file.read()
        assert "store etcd://" in text and word in text, text
    return servers[1:]


def main():
    seed = int(os.environ.get("MUSTER_SEED", time.time_ns() % 1000000))
    print("seed", seed, flush=True)
    random.seed(seed)
    began = time.monotonic()
    def say(what):
        print(f"{time.monotonic() - began:6.2f} s  {what}", flush=True)
    cluster = Cluster(1)
    servers = cut_off_alone(cluster, seed)
    say("one server was cut off alone")
    damaged(cluster, servers)
    say("what was stored was damaged")
    compacted(cluster, servers)
    say("a job was compacted")
    servers += secured()
    say("over https")
    for server in servers:
        server.process.terminate()
    for server in servers:
        assert server.process.wait(WAIT_S) == 0
    say("done")


run(main)
