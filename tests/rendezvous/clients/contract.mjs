// The whole contract by a client that stock Connect tools generated from the .proto, over HTTP/1.1:
// every method in JSON and in binary proto, packed or not, by POST and by GET, and as a stream.
// node contract.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import { subscribe } from "node:diagnostics_channel";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { compressionGzip, createConnectTransport } from "@connectrpc/connect-node";
import { JobPhase, LeaveReason, Rendezvous } from "./generated/muster/v1/rendezvous_pb.js";

const baseUrl = process.argv[2];
const wholeBytes = new Uint8Array(50000).fill(7);
const seen = new Set(); // methods that were called
let types = new Set(); // content types of the responses of one way
let queries = []; // paths of its GETs
subscribe("http.client.request.start", ({ request }) => {
  if (request.method === "GET") {
    queries.push(request.path);
  }
});

const uuid = (number) => `00000000-0000-4000-8000-${String(number).padStart(12, "0")}`;

function makeClient(way, token) {
  const look = (next) => async (request) => {
    seen.add(request.method.name);
    if (token) {
      request.header.set("Authorization", `Bearer ${token}`);
    }
    const response = await next(request);
    types.add(response.header.get("content-type"));
    return response;
  };
  return createClient(Rendezvous, createConnectTransport({
    baseUrl,
    httpVersion: "1.1",
    useBinaryFormat: way.binary,
    useHttpGet: way.get,
    acceptCompression: way.packed ? [compressionGzip] : [],
    sendCompression: way.packed ? compressionGzip : undefined,
    compressMinBytes: 1,
    interceptors: [look],
  }));
}

async function fails(promise, code, part) {
  const error = await promise.then(() => assert.fail(`no error, but ${Code[code]} was expected`), ConnectError.from);
  assert.equal(Code[error.code], Code[code], error.message);
  assert.ok(error.rawMessage.includes(part), `no "${part}" in "${error.rawMessage}"`);
}

async function collect(stream, into) {
  for await (const message of stream) {
    into.push(message);
  }
}

async function formJob(client, job, size) {
  const joins = [];
  for (let i = 0; i < size; i++) {
    joins.push(client.join({
      job, member: uuid(i), host: "a", addresses: [`tcp://10.0.0.1:${4000 + i}`], order: i, pid: 100 + i,
      minSize: 2, maxSize: size + 2, targetSize: size, libraryVersion: "stock",
      capabilities: { nccl: "2.19.3", who: "stock é" },
    }));
  }
  const answers = await Promise.all(joins);
  answers.forEach((answer, i) => {
    assert.equal(answer.waiting, undefined);
    assert.equal(answer.formed.rank, i);
    assert.equal(answer.formed.size, size);
    assert.equal(answer.formed.peers[i].member, uuid(i));
    assert.deepEqual(answer.formed.peers[i].addresses, [`tcp://10.0.0.1:${4000 + i}`]);
  });
  return answers[0].formed.generation;
}

async function checkValues(client, job) {
  await client.put({ job, key: "whole", value: wholeBytes });
  assert.deepEqual((await client.get({ job, key: "whole" })).value, wholeBytes);
  await client.put({ job, key: "empty" });
  assert.equal((await client.get({ job, key: "empty" })).value.length, 0);
  assert.equal((await client.wait({ job, keys: ["whole", "empty"], timeoutMs: 1000 })).value.length, 0);
  const later = client.wait({ job, key: "later", timeoutMs: 10000 });
  await client.put({ job, key: "later", value: new Uint8Array([0, 255, 128]) });
  assert.deepEqual((await later).value, new Uint8Array([0, 255, 128]));
  await fails(client.wait({ job, key: "never", timeoutMs: 50 }), Code.DeadlineExceeded, "never");
  await fails(client.get({ job, key: "never" }), Code.NotFound, "never");
  await fails(client.get({ job, key: "" }), Code.InvalidArgument, "key");
  await fails(client.get({ job, key: "x".repeat(256) }), Code.InvalidArgument, "key");
  const least = -(2n ** 63n);
  assert.equal((await client.add({ job, key: "sum", amount: least })).value, least);
  assert.equal((await client.add({ job, key: "sum", amount: 2n ** 63n - 1n })).value, -1n);
  const requestId = uuid(77);
  assert.equal((await client.add({ job, key: "sum", amount: 5n, requestId })).value, 4n);
  assert.equal((await client.add({ job, key: "sum", amount: 5n, requestId })).value, 4n);
  const expected = new TextEncoder().encode("4");
  const swapped = await client.compareAndSwap({ job, key: "sum", expected, value: new Uint8Array([9]) });
  assert.deepEqual([swapped.swapped, [...swapped.value]], [true, [9]]);
  assert.equal((await client.compareAndSwap({ job, key: "sum", expected })).swapped, false);
  assert.equal((await client.countKeys({ job, prefix: "" })).count, 4);
  assert.equal((await client.countKeys({ job, prefix: "w" })).count, 1);
  assert.equal((await client.delete({ job, key: "sum" })).deleted, true);
  assert.equal((await client.delete({ job, key: "sum" })).deleted, false);
}

// A viewer and a member watch while the job is resized, is left and ends.
async function checkLife(client, job, generation) {
  const pictures = [];
  const viewer = collect(client.watchStream({ job }), pictures);
  const changes = [];
  const member = collect(client.watchStream({ job, member: uuid(2), generation, progress: 12n }), changes);
  const watch = client.watch({ job, member: uuid(1), generation });
  const peers = await client.peers({ job, member: uuid(0), generation, ranks: [2, 0] });
  assert.deepEqual(peers.peers.map((peer) => [peer.rank, peer.member]), [[2, uuid(2)], [0, uuid(0)]]);
  while (pictures.length === 0) { // the stream has begun before anything changes
    await new Promise((done) => setTimeout(done, 2));
  }
  await client.resize({ job, targetSize: 2 });
  await client.leave({ job, member: uuid(0), generation, reason: LeaveReason.PLANNED, why: "Übung ✓" });
  assert.equal((await watch).revoked, true);
  await member;
  assert.equal(changes.at(-1).watch.revoked, true);
  assert.equal(changes.at(-1).job, undefined);
  const seenJob = (await client.getJob({ job })).job;
  assert.equal(seenJob.name, job);
  assert.equal(seenJob.targetSize, 2);
  assert.equal(seenJob.generation, generation);
  assert.equal(seenJob.resizes, 1n);
  assert.deepEqual(seenJob.departures.map((left) => [left.member, left.reason, left.why, left.pid]),
    [[uuid(0), "planned", "rank 0 (host a, pid 100) left: Übung ✓", 100]]);
  assert.deepEqual(seenJob.members.map((one) => [one.member, one.libraryVersion]).sort(),
    [[uuid(1), "stock"], [uuid(2), "stock"]]);
  assert.deepEqual(seenJob.members[0].capabilities, { nccl: "2.19.3", who: "stock é" });
  await fails(client.report({ job, member: uuid(1), generation: 99n, suspect: 2, why: "reset" }), Code.Aborted, "99");
  await client.endJob({ job, why: "enough" });
  await viewer;
  assert.equal(pictures[0].job.members.length, 3);
  assert.equal(pictures.at(-1).job.phase, JobPhase.ENDED);
  assert.equal(pictures.at(-1).watch, undefined);
  await fails(client.watch({ job, member: uuid(1), generation }), Code.FailedPrecondition, "enough");
  await fails(collect(client.watchStream({ job, member: uuid(1), generation }), []), Code.FailedPrecondition, "enough");
  const listed = (await client.listJobs({})).jobs.find((one) => one.name === job);
  assert.equal(listed.phase, JobPhase.ENDED);
}

async function checkErrors(client, job) {
  await fails(client.getJob({ job: "nobody" }), Code.NotFound, "nobody");
  await fails(collect(client.watchStream({ job: "nobody" }), []), Code.NotFound, "nobody");
  await fails(client.getJob({ job: "no such name!" }), Code.InvalidArgument, "job");
  await fails(client.join({ job, member: "x", host: "a" }), Code.InvalidArgument, "member");
  await fails(client.join({ job, member: uuid(1), host: "a/b" }), Code.InvalidArgument, "host");
  await fails(client.leave({ job, member: uuid(1), reason: 17 }), Code.InvalidArgument, "reason");
  await fails(client.getJob({ job }, { timeoutMs: 1e9 }), Code.NotFound, job);
}

async function checkTokens(way) {
  const job = `token-${way.name}`;
  const owner = makeClient(way, "secret");
  await owner.join({ job, member: uuid(0), host: "a", addresses: ["tcp://a:1"], minSize: 1, maxSize: 1 });
  await fails(makeClient(way).getJob({ job }), Code.Unauthenticated, job);
  await fails(collect(makeClient(way).watchStream({ job }), []), Code.Unauthenticated, job);
  await fails(collect(owner.watchStream({ job }, { timeoutMs: 600 }), []), Code.DeadlineExceeded, "");
  await owner.endJob({ job });
}

const ways = [];
for (const binary of [false, true]) {
  for (const packed of [false, true]) {
    ways.push({ binary, packed, get: packed, name: `${binary ? "proto" : "json"}${packed ? "-gzip-get" : ""}` });
  }
}
for (const way of ways) {
  types = new Set();
  queries = [];
  const job = `job-${way.name}`;
  const client = makeClient(way);
  await checkErrors(client, job);
  const generation = await formJob(client, job, 3);
  await checkValues(client, job);
  await checkLife(client, job, generation);
  await checkTokens(way);
  const format = way.binary ? "proto" : "json";
  assert.deepEqual(types, new Set([`application/${format}`, `application/connect+${format}`]));
  assert.equal(queries.some((path) => path.includes(`encoding=${format}`) && path.includes("compression=gzip")), way.get);
  console.log(`${way.name}: ${queries.length} calls were a GET`);
}
assert.deepEqual([...seen].sort(), Rendezvous.methods.map((method) => method.name).sort());
console.log(`all ${seen.size} methods`);
process.exit(0); // idle connections need not time out
