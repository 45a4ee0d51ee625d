"""What a crowd of strangers does to a musterd: connections that stay idle, bodies that never end.

Usage: flood.py PORT idle COUNT [FROM] | bodies COUNT BYTES [FROM]. FROM is the address that connects, default
127.0.0.1. Prints "ready" once all are open, then waits until standard input ends.
flood.py PORT rate COUNT FROM [TOKEN]: asks so often for a job that is not there, and prints each status and how often
it came; Retry-After of the last one that had it.
flood.py PORT values JOB COUNT: puts values of 64 KiB into a job, and prints the last answer.
"""
import base64
import http.client
import json
import resource
import socket
import sys


def connect(port, address):
    s = socket.socket()
    s.bind((address, 0))
    s.connect(("127.0.0.1", port))
    return s


def put_values(port, job, count):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    value = base64.b64encode(bytes(65536)).decode()
    answer = ""
    for i in range(count):
        body = json.dumps({"job": job, "key": f"k{i}", "value": value})
        connection.request("POST", "/muster.v1.Rendezvous/Put", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read().decode()
        if response.status != 200:
            break
    print(answer)


def ask_often(port, count, address, token):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=(address, 0))
    headers = {"Content-Type": "application/json"} | ({"Muster-Server-Token": token} if token else {})
    seen, later = {}, None
    for _ in range(count):
        connection.request("POST", "/muster.v1.Rendezvous/GetJob", '{"job":"none"}', headers)
        response = connection.getresponse()
        response.read()
        seen[response.status] = seen.get(response.status, 0) + 1
        later = response.getheader("Retry-After") or later
    print(*(f"{status} {times}" for status, times in sorted(seen.items())), *(["Retry-After", later] if later else []))


def main():
    if sys.argv[2] == "rate":
        ask_often(int(sys.argv[1]), int(sys.argv[3]), sys.argv[4], sys.argv[5] if len(sys.argv) > 5 else "")
        return
    if sys.argv[2] == "values":
        put_values(int(sys.argv[1]), sys.argv[3], int(sys.argv[4]))
        return
    port, kind, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    rest = sys.argv[4:]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 64) if hard > 0 else count + 64, hard))
    size = int(rest.pop(0)) if kind == "bodies" else 0
    address = rest[0] if rest else "127.0.0.1"
    held = []
    for _ in range(count):
        s = connect(port, address)
        held.append(s)
        if size:
            s.sendall(f"POST /muster.v1.Rendezvous/Put HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                      f"Content-Length: {size}\r\n\r\n".encode())
            try:
                s.sendall(b" " * (size - 1))
            except OSError:
                pass  # the server has closed it
    print("ready", flush=True)
    sys.stdin.read()


main()
