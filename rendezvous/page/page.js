// The page of musterd: asks for the jobs once a second, and draws them. Everything that comes from
// the server is put in as text, never as HTML.
"use strict";

const POLL_MS = 1000;
const TIMEOUT_MS = 8000;
const EVENTS_MAX = 80;
const BARS_MAX = 40;
const RUN_OF_JOINS = 3; // so many joins in a row are one line
const OPEN_HOSTS_MAX = 12; // with more hosts, their members are shown on demand

const view = {
    name: "", // of the job that is shown
    jobs: null, // of ListJobs
    job: null, // of GetJob
    problem: null, // the error of GetJob
    open: new Map(), // job and host -> whether its members are shown
    answered: 0, // when the server answered last
    shut: false, // the server wants a token of its own
    away: "", // why it did not answer
    drawn: "", // the job whose form was drawn
};

const byId = (id) => document.getElementById(id);

// Elements ---------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
        if (value !== null && value !== false) {
            node.setAttribute(name, value === true ? "" : value);
        }
    }
    node.append(...children.flat().filter((child) => child !== null));
    return node;
}

const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);

// Makes one tree like another and keeps its nodes, so that focus, selection and scrolling stay.
function patch(old, fresh) {
    if (old.nodeName !== fresh.nodeName) {
        old.replaceWith(fresh);
        return;
    }
    if (old.nodeType === Node.TEXT_NODE) {
        if (old.data !== fresh.data) {
            old.data = fresh.data;
        }
        return;
    }
    for (const { name } of [...old.attributes]) {
        if (!fresh.hasAttribute(name)) {
            old.removeAttribute(name);
        }
    }
    for (const { name, value } of [...fresh.attributes]) {
        if (old.getAttribute(name) !== value) {
            old.setAttribute(name, value);
        }
    }
    const olds = [...old.childNodes];
    const news = [...fresh.childNodes];
    news.forEach((child, i) => (i < olds.length ? patch(olds[i], child) : old.append(child)));
    olds.slice(news.length).forEach((child) => child.remove());
}

function draw(place, ...children) {
    const fresh = place.cloneNode(false);
    fresh.append(...children.flat().filter((child) => child !== null));
    patch(place, fresh);
}

// Words ------------------------------------------------------------------------------------------

// 64-bit numbers are strings in JSON, and fields that are 0 may be absent.
const number = (value) => Number(value ?? 0);
// The lower half of a generation is what people are shown.
const generation = (value) => String(BigInt(value ?? 0) & 0xffffffffn);
const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

function duration(ms) {
    if (ms < 1000) {
        return `${Math.round(ms)} ms`;
    }
    if (ms < 60000) {
        return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
    }
    const minutes = Math.floor(ms / 60000);
    if (minutes < 60) {
        return `${minutes} min ${Math.floor((ms % 60000) / 1000)} s`;
    }
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

function ago(ms) {
    const s = Math.max(0, Math.floor(ms / 1000));
    if (s < 60) {
        return `${s} s ago`;
    }
    if (s < 3600) {
        return `${Math.floor(s / 60)} min ago`;
    }
    return s < 48 * 3600 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86400)} days ago`;
}

const PHASES = {
    JOB_PHASE_FORMING: ["forming", "warn"],
    JOB_PHASE_RUNNING: ["running", "good"],
    JOB_PHASE_ENDED: ["ended", "soft"],
};
const phase = (job) => PHASES[job.phase] ?? ["unknown", "soft"];
const badge = ([word, kind]) => h("span", { class: `badge ${kind}` }, word);

// Parts of a job ---------------------------------------------------------------------------------

// The times between generations: {from, to, ms, running}, oldest first.
function recoveries(job) {
    const records = job.generations ?? [];
    const list = [];
    records.forEach((record, i) => {
        const revoked = number(record.revokedMs);
        const next = records[i + 1];
        if (revoked > 0 && next) {
            list.push({ to: generation(next.number), ms: number(next.formedMs) - revoked,
                why: record.why ?? "" });
        } else if (revoked > 0 && job.phase === "JOB_PHASE_FORMING") {
            list.push({ to: "now", ms: number(job.nowMs) - revoked, why: record.why ?? "",
                running: true });
        }
    });
    return list;
}

function drawHead(job) {
    const range = `${number(job.minSize)} to ${number(job.maxSize)} workers`;
    const target = number(job.targetSize) > 0 ? `, target ${number(job.targetSize)}` : "";
    return h("section", { class: "card" },
        h("div", { class: "head" }, h("h1", {}, job.name), badge(phase(job)),
            job.pending ? badge(["a change is pending", "warn"]) : null),
        h("p", { class: "why" }, job.why ?? ""),
        drawTiles(job),
        h("p", { class: "why small" }, `${range}${target}; the job began `
            + `${ago(number(job.nowMs))}`));
}

function drawTiles(job) {
    const members = job.members ?? [];
    const active = members.filter((member) => member.phase === "active").length;
    const hosts = new Set(members.map((member) => member.host)).size;
    const last = recoveries(job).at(-1);
    const died = (job.departures ?? []).filter((gone) => gone.reason === "died").length;
    const tile = (value, words, kind) =>
        h("div", { class: "tile" }, h("b", { class: kind ?? null }, value), h("span", {}, words));
    return h("div", { class: "tiles" },
        tile(active === members.length ? String(active) : `${active} of ${members.length}`,
            "active workers", active === members.length ? null : "warn"),
        tile(String(hosts), hosts === 1 ? "host" : "hosts"),
        tile(number(job.generation) === 0 ? "–" : generation(job.generation), "generation"),
        tile(last ? duration(last.ms) : "–", last?.running ? "recovering for" : "last recovery",
            last?.running ? "warn" : null),
        tile(String(died), died === 1 ? "death" : "deaths", died > 0 ? "bad" : null));
}

function roundUp(ms) {
    const power = 10 ** Math.floor(Math.log10(Math.max(ms, 1)));
    return [1, 2, 5, 10].map((step) => step * power).find((limit) => limit >= ms);
}

// A bar for each recovery, drawn in pixels so that its text is as large on a phone.
function drawChart(job, width) {
    const bars = recoveries(job).slice(-BARS_MAX);
    if (bars.length === 0) {
        return h("p", { class: "soft" }, "No generation has been replaced so far.");
    }
    const [left, top, height, bottom] = [52, 8, 110, 18];
    const limit = roundUp(Math.max(...bars.map((bar) => bar.ms)));
    const step = (width - left) / Math.max(bars.length, 6);
    const every = Math.ceil(34 / step); // labels that do not touch each other
    const lines = [0, 0.5, 1].map((part) => {
        const y = top + height * (1 - part);
        return [svg("line", { class: "grid", x1: left, x2: width, y1: y, y2: y }),
            svg("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, duration(limit * part))];
    });
    const columns = bars.map((bar, i) => {
        const size = Math.max(2, (height * bar.ms) / limit);
        const x = left + i * step;
        const label = (bars.length - 1 - i) % every === 0
            ? svg("text", { x: x + step / 2, y: top + height + 14, "text-anchor": "middle" },
                bar.to) : null;
        return [svg("rect", { class: bar.running ? "bar running" : "bar", rx: 2,
            x: x + step * 0.15, width: step * 0.7, y: top + height - size, height: size },
        svg("title", {}, `${duration(bar.ms)} to generation ${bar.to}: ${bar.why}`)), label];
    });
    const total = top + height + bottom;
    return svg("svg", { viewBox: `0 0 ${width} ${total}`, role: "img", "aria-label":
        "Time from the end of a generation to the next, by generation" }, lines.flat(),
    columns.flat());
}

// Each host with its members, by rank; newcomers have none and come last.
function hostsOf(job) {
    const hosts = new Map();
    const place = (member) => (number(member.rank) < 0 ? Infinity : number(member.rank));
    const members = [...(job.members ?? [])].sort((a, b) => place(a) - place(b) || 0);
    for (const member of members) {
        const name = member.host ?? "";
        hosts.set(name, [...(hosts.get(name) ?? []), member]);
    }
    return hosts;
}

function memberState(member) {
    const words = [];
    if (member.phase === "arrived") {
        words.push(["waits for the next generation", "warn"]);
    } else if (member.phase === "awaited") {
        words.push(["has not joined again yet", "warn"]);
    }
    if (member.suspected) {
        words.push(["suspected", "bad"]);
    }
    if (member.leaveAsked) {
        words.push(["asked to leave", "warn"]);
    }
    return words;
}

function drawMember(member) {
    const rank = (value) => (number(value) < 0 ? "–" : String(number(value)));
    const numbers = [rank(member.rank), rank(member.localRank), rank(member.crossRank),
        String(number(member.pid)), number(member.progress).toLocaleString("en"),
        duration(number(member.silentMs))];
    const state = memberState(member);
    return [h("tr", { title: `member ${member.member}` },
        numbers.map((text) => h("td", { class: "n" }, text))),
    state.length === 0 ? null : h("tr", {}, h("td", { colspan: 6 }, state.map(badge)))];
}

function drawHost(job, name, members, many) {
    const key = `${job.name} ${name}`;
    const open = view.open.get(key) ?? !many;
    const rack = members[0].rack ? `, rack ${members[0].rack}` : "";
    const bad = members.filter((member) => memberState(member).length > 0).length;
    const heads = ["rank", "local", "cross", "pid", "operations", "silent"];
    return h("details", { class: "host", open, "data-key": key },
        h("summary", {}, h("h3", {}, name), " ", h("span", { class: "soft small" },
            `${count(members.length, "worker")}${rack}`), " ",
        bad > 0 && !open ? badge([`${bad} not active`, "warn"]) : null),
        open ? h("div", { class: "scroll" }, h("table", {},
            h("thead", {}, h("tr", {}, heads.map((head) => h("th", { class: "n" }, head)))),
            h("tbody", {}, members.map(drawMember).flat()))) : null);
}

function drawHosts(job) {
    const hosts = [...hostsOf(job)];
    const many = hosts.length > OPEN_HOSTS_MAX;
    return h("section", { class: "card" }, h("h2", {}, "Members by host"), hosts.length === 0
        ? h("p", { class: "soft" }, "No member is in the job.")
        : h("div", { class: "hosts" }, hosts.map(([name, members]) =>
            drawHost(job, name, members, many))));
}

function drawGenerations(job) {
    const records = job.generations ?? [];
    const gaps = new Map(recoveries(job).map((gap) => [gap.to, gap.ms]));
    const rows = records.map((record, i) => {
        const formed = number(record.formedMs);
        const revoked = number(record.revokedMs);
        const runs = i === records.length - 1 && revoked === 0;
        const ended = runs && job.phase === "JOB_PHASE_ENDED";
        const gap = gaps.get(generation(record.number));
        const lasted = revoked > 0 ? duration(revoked - formed) : "runs";
        const numbers = [generation(record.number), String(number(record.size)),
            String(number(record.hosts)), gap === undefined ? "–" : duration(gap),
            ended ? "–" : lasted];
        const why = ended ? job.why ?? "" : record.why ?? "";
        return h("tbody", {}, h("tr", {}, numbers.map((text) => h("td", { class: "n" }, text))),
            why === "" ? null : h("tr", {}, h("td", { colspan: numbers.length,
                class: "text soft small" }, `ended: ${why}`)));
    }).reverse();
    const heads = ["generation", "workers", "hosts", "recovery", "lasted"];
    return h("section", { class: "card" }, h("h2", {}, "Generations"), rows.length === 0
        ? h("p", { class: "soft" }, "None has formed yet.")
        : h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {},
            heads.map((head) => h("th", { class: "n" }, head)))), rows)));
}

// What happened ----------------------------------------------------------------------------------

const GONE = { died: ["died", "bad"], failed: ["gave up", "bad"], planned: ["left", "warn"],
    finished: ["finished", "soft"] };

function joined(members) {
    if (members.length > RUN_OF_JOINS) {
        const hosts = new Set(members.map((member) => member.host)).size;
        return `${members.length} of the present workers, on ${count(hosts, "host")}`;
    }
    return members.map((member) => `host ${member.host}, pid ${number(member.pid)}`).join("; ");
}

// All events by time, with what follows from another after it: a revocation, a death, a generation.
function eventsOf(job) {
    const events = [];
    for (const member of job.members ?? []) {
        events.push({ at: number(member.joinedMs), order: 3, member });
    }
    for (const gone of job.departures ?? []) {
        events.push({ at: number(gone.atMs), order: 1, what: GONE[gone.reason] ?? GONE.died,
            text: gone.why || `host ${gone.host}, pid ${number(gone.pid)}` });
    }
    for (const record of job.generations ?? []) {
        const name = `generation ${generation(record.number)}`;
        events.push({ at: number(record.formedMs), order: 4, what: ["formed", "good"],
            text: `${name}: ${count(number(record.size), "worker")} on `
                + count(number(record.hosts), "host") });
        if (number(record.revokedMs) > 0) {
            events.push({ at: number(record.revokedMs), order: 2, what: ["revoked", "warn"],
                text: `${name}: ${record.why ?? ""}` });
        }
    }
    events.sort((a, b) => a.at - b.at || a.order - b.order);
    const merged = [];
    for (const event of events) {
        const last = merged.at(-1);
        if (event.member && last?.members) {
            last.members.push(event.member);
            last.at = event.at;
        } else {
            merged.push(event.member ? { at: event.at, members: [event.member] } : event);
        }
    }
    return merged.reverse().slice(0, EVENTS_MAX);
}

function drawEvents(job) {
    const now = number(job.nowMs);
    const items = eventsOf(job).map((event) => {
        const time = new Date(Math.round((Date.now() - (now - event.at)) / 1000) * 1000);
        const what = event.members ? ["joined", "good"] : event.what;
        return h("li", {}, h("time", { title: time.toLocaleString() }, ago(now - event.at)),
            h("div", {}, badge(what), ` ${event.members ? joined(event.members) : event.text}`));
    });
    return h("section", { class: "card" }, h("h2", {}, "What happened"), h("ol", { class: "events" },
        items));
}

// The page ---------------------------------------------------------------------------------------

function drawJobs() {
    if (view.jobs === null) {
        return;
    }
    const rows = view.jobs.map((job) => h("a", { href: `#job=${encodeURIComponent(job.name)}`,
        "aria-current": job.name === view.name ? "true" : null },
    h("span", { class: "name" }, job.name, h("br", {}), h("span", { class: "soft small" },
        `${count(number(job.members), "member")}, generation ${generation(job.generation)}`)),
    badge(phase(job))));
    draw(byId("jobs"), rows.length > 0 ? rows : h("p", { class: "soft" }, "There is no job."));
}

function chartWidth() {
    const chart = byId("chart");
    return Math.max(240, Math.round(chart ? chart.clientWidth : byId("job").clientWidth - 34));
}

function drawJob() {
    const place = byId("job");
    if (view.problem !== null) {
        draw(place, h("p", { class: "card" }, view.problem));
    } else if (view.job !== null) {
        draw(place, drawHead(view.job),
            h("section", { class: "card" }, h("h2", {}, "Recovery: from the end of a generation "
                + "to the next"), h("div", { id: "chart" }, drawChart(view.job, chartWidth()))),
            drawHosts(view.job),
            h("div", { class: "two" }, drawGenerations(view.job), drawEvents(view.job)));
    } else {
        const some = (view.jobs ?? []).length > 0;
        draw(place, h("p", { class: "soft" }, view.name !== "" ? `asking for ${view.name}`
            : some ? "Choose a job." : "Jobs appear here when their first worker joins."));
    }
}

function drawConnection() {
    const place = byId("connection");
    const silent = Date.now() - view.answered;
    const text = view.shut ? "locked" : view.away === "" ? "live"
        : `no answer${view.answered > 0 ? ` for ${duration(silent)}` : ""}: ${view.away}`;
    place.className = view.away === "" ? "" : "away";
    if (place.textContent !== text) {
        place.textContent = text;
    }
}

function drawAll() {
    document.title = view.job ? `${view.job.name}: ${phase(view.job)[0]}` : "musterd";
    drawJobs();
    drawJob();
    drawConnection();
}

// The server -------------------------------------------------------------------------------------

const tokenOf = (name) => sessionStorage.getItem(`token ${name}`) ?? "";
const SERVER_TOKEN = "server token";
const isLocked = (error) => ["unauthenticated", "permission_denied"].includes(error.code);

// The method's response, or an Error with the server's code.
async function call(method, message, token) {
    const headers = { "Content-Type": "application/json", "Connect-Protocol-Version": "1" };
    if (token !== "") {
        headers.Authorization = `Bearer ${token}`;
    }
    const serverToken = sessionStorage.getItem(SERVER_TOKEN) ?? "";
    if (serverToken !== "") {
        headers["Muster-Server-Token"] = serverToken;
    }
    const response = await fetch(`muster.v1.Rendezvous/${method}`, { method: "POST", headers,
        body: JSON.stringify(message), signal: AbortSignal.timeout(TIMEOUT_MS),
        credentials: "omit", cache: "no-store" });
    const json = await response.json();
    if (!response.ok) {
        throw Object.assign(new Error(json.message ?? response.statusText), { code: json.code });
    }
    return json;
}

function askForToken(problem) {
    const form = byId("access");
    form.hidden = problem === null;
    if (problem !== null) {
        byId("access-why").textContent = problem;
    }
}

// A response to a call for a job that is not shown any more is dropped.
async function askForJob(name) {
    try {
        const { job } = await call("GetJob", { job: name }, tokenOf(name));
        if (name === view.name) {
            [view.job, view.problem] = [job, null];
            askForToken(null);
        }
    } catch (error) {
        if (!error.code) {
            throw error;
        }
        if (name === view.name) {
            [view.job, view.problem] = [null, isLocked(error) ? null : error.message];
            askForToken(isLocked(error) ? error.message : null);
        }
    }
}

async function ask() {
    try {
        const { jobs } = await call("ListJobs", {}, tokenOf(view.name));
        view.shut = false;
        view.jobs = [...(jobs ?? [])].sort((a, b) => a.name.localeCompare(b.name));
        if (view.name === "" && view.jobs.length === 1) {
            view.name = view.jobs[0].name;
        }
        if (view.name !== "") {
            await askForJob(view.name);
        }
        [view.answered, view.away] = [Date.now(), ""];
    } catch (error) {
        view.away = error.name === "TimeoutError" ? "timed out" : error.message;
        if (isLocked(error)) {
            [view.shut, view.jobs, view.job] = [true, null, null];
            askForToken("This server needs the token of a viewer.");
        }
    }
}

async function follow() {
    for (;;) {
        await ask();
        drawAll();
        await new Promise((done) => setTimeout(done, POLL_MS));
        if (document.hidden) {
            await new Promise((done) =>
                document.addEventListener("visibilitychange", done, { once: true }));
        }
    }
}

// #job=NAME&token=TOKEN: the token is taken out of the address, so that it is not copied with it.
function readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    const name = given.get("job") ?? "";
    if (given.has("token")) {
        sessionStorage.setItem(`token ${name}`, given.get("token"));
        history.replaceState(null, "", `#job=${encodeURIComponent(name)}`);
    }
    if (given.has("server-token")) {
        sessionStorage.setItem(SERVER_TOKEN, given.get("server-token"));
        history.replaceState(null, "", name === "" ? "#" : `#job=${encodeURIComponent(name)}`);
    }
    if (name !== view.name) {
        [view.name, view.job, view.problem] = [name, null, null];
        askForToken(null);
    }
}

async function show() {
    readAddress();
    drawAll();
    if (view.name !== "" && view.jobs !== null) {
        await askForJob(view.name).catch(() => {}); // the next turn says what is wrong
        drawAll();
    }
}

addEventListener("hashchange", show);
addEventListener("resize", drawJob);
byId("job").addEventListener("toggle", (event) => {
    const { key } = event.target.dataset;
    if (view.open.get(key) !== event.target.open) {
        view.open.set(key, event.target.open);
        drawJob();
    }
}, true);
byId("access").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(view.shut ? SERVER_TOKEN : `token ${view.name}`,
        byId("token").value.trim());
    byId("token").value = "";
    askForToken(null);
    show();
});
readAddress();
follow();
