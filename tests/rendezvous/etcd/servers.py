#!/usr/bin/env python3
"""Three musterd that share an etcd cluster of three members. Servers and members of the cluster are killed, frozen and
ended while clients write; what was answered must be there, and no answer may come from an old state.

usage: servers.py BIN   where BIN/musterd and BIN/muster are
"""
import http.client
import os
import random
import signal
import subprocess
import threading
import time

from cluster import BIN, WAIT_S, Cluster, Server, Writer, ask_any, form, owner_of, run, wait_for


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
        say(f"{writer.job}: {writer.sum} Adds")
    urls = ",".join(server.url() for server in servers)
    subprocess.run([f"{BIN}/muster", "run", "-n", "3", "--rendezvous", "http://127.0.0.1:1," + urls, "--job", "sum",
                    "--", f"{BIN}/hello_allreduce"], check=True, timeout=WAIT_S, stdout=subprocess.DEVNULL)
    for server in servers:
        server.process.terminate()
    for server in servers:
        assert server.process.wait(WAIT_S) == 0
    say("done")


run(main)
