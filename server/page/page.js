/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks /page/state.json every two seconds and shows what came; looks digests up. Whatever comes from the server is shown as text,
 * never as markup: there is no innerHTML here. Where one is in a look-up is in the address behind #/, so that Back works and
 * links can be given away.
 */
"use strict";

const POLL_MS = 2000;
const SAMPLES = 150; // five minutes

const $ = (id) => document.getElementById(id);

// An element with attributes and children; strings become text.
function make(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {}))
    if (value !== undefined && value !== false)
      made.setAttribute(key, value === true ? "" : value);
  made.append(...children.filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}

// Only when it differs, so that nothing is read out again.
function say(id, text) {
  if ($(id).textContent !== text)
    $(id).textContent = text;
}

// ---- numbers as people write them

const NARROW = "\u202f";

function three(value) {
  if (value >= 99.95) return String(Math.round(value));
  return value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (value >= 999.5 && unit + 1 < units.length) {
    value /= 1024;
    unit++;
  }
  return (unit === 0 ? String(Math.round(value)) : three(value)) + NARROW + units[unit];
}

function count(value) {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, NARROW);
}

function rate(value) {
  return (value === 0 ? "0" : value < 99.95 ? value.toFixed(1) : count(value)) + "/s";
}

function duration(seconds) {
  const steps = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const at = steps.findIndex(([, step]) => seconds >= step);
  if (at < 0) return seconds > 0 ? three(seconds) + NARROW + "s" : "0" + NARROW + "s";
  const [name, step] = steps[at];
  const first = Math.floor(seconds / step) + NARROW + name;
  if (at + 1 >= steps.length) return first;
  const rest = Math.floor((seconds % step) / steps[at + 1][1]);
  return rest > 0 ? first + " " + rest + NARROW + steps[at + 1][0] : first;
}

function short(us) {
  return us >= 1e6 ? three(us / 1e6) + NARROW + "s" : us >= 1000 ? three(us / 1000) + NARROW + "ms" : Math.round(us) + NARROW + "µs";
}

function share(part, all) {
  if (all === 0) return "–";
  const per = 100 * part / all;
  // 100 % is said of all, and 0 % of none.
  const shown = part < all && per > 99.9 ? 99.9 : part > 0 && per < 0.1 ? 0.1 : per;
  return (Number.isInteger(shown) ? String(shown) : shown.toFixed(1)) + NARROW + "%";
}

const when = (ms) => new Date(ms).toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");

// ---- charts

const SVG = "http://www.w3.org/2000/svg";

function drawing(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// A round number that is not below the largest value.
function ceiling(value, base) {
  if (value <= 0) return base === 1024 ? 1024 : 1;
  let unit = 1;
  while (base === 1024 && value > unit * 512) unit *= 1024;
  const tens = Math.pow(10, Math.floor(Math.log10(value / unit)));
  for (const step of [1, 2, 5, 10]) if (value <= step * tens * unit) return step * tens * unit;
  return 10 * tens * unit;
}

const charts = [
  { title: "Bytes", series: [["to clients", "out"], ["from clients", "in"]], base: 1024, show: (v) => bytes(v) + "/s" },
  { title: "Requests", series: [["requests", "requests"], ["failed", "failed"]], base: 10, show: rate },
  { title: "Action results", series: [["found", "hits"], ["not found", "misses"]], base: 10, show: rate },
  { title: "Writes and syncs", series: [["writes", "writes"], ["syncs", "syncs"]], base: 10, show: rate,
    aside_of: (now) => now.syncs > 0 ? three(now.writes / now.syncs) + " writes to a sync" : "" },
];

function makeCharts() {
  for (const chart of charts) {
    const svg = drawing("svg", { viewBox: "0 0 " + (SAMPLES - 1) + " 100", preserveAspectRatio: "none", role: "img" });
    for (const y of [0, 50]) svg.append(drawing("line", { class: "grid", x1: 0, x2: SAMPLES - 1, y1: y, y2: y }));
    chart.under = svg.appendChild(drawing("path", { class: "under" }));
    chart.lines = chart.series.map((_, i) => svg.appendChild(drawing("path", { class: i ? "line second" : "line" })));
    chart.svg = svg;
    chart.most = make("span", { class: "most" });
    chart.legend = make("span", { class: "series" }, ...chart.series.map(([name]) => make("span", {}, name)));
    chart.aside = make("span", { class: "quiet" });
    $("charts").append(make("div", { class: "chart" }, make("h3", {}, chart.title), make("p", { class: "legend" }, chart.legend, chart.aside),
      make("div", { class: "plot" }, svg, chart.most),
      make("div", { class: "axis", "aria-hidden": "true" }, make("span", {}, "5" + NARROW + "min ago"), make("span", {}, "now"))));
  }
}

function draw(samples) {
  for (const chart of charts) {
    const values = chart.series.map(([, key]) => samples.map((sample) => sample[key]));
    const most = ceiling(Math.max(0, ...values.flat()), chart.base);
    const x = (i) => SAMPLES - samples.length + i;
    chart.lines.forEach((line, k) => {
      const points = values[k].map((value, i) => x(i) + " " + (100 - 100 * value / most).toFixed(2));
      line.setAttribute("d", points.length > 1 ? "M" + points.join("L") : "");
      if (k === 0)
        chart.under.setAttribute("d", points.length > 1 ? "M" + x(0) + " 100L" + points.join("L") + "L" + x(points.length - 1) + " 100Z" : "");
    });
    const now = chart.series.map(([name], k) => name + " " + (values[k].length ? chart.show(values[k].at(-1)) : "–"));
    [...chart.legend.children].forEach((span, k) => { span.textContent = now[k]; });
    chart.aside.textContent = chart.aside_of && samples.length > 0 ? chart.aside_of(samples.at(-1)) : "";
    chart.most.textContent = chart.show(most);
    chart.svg.setAttribute("aria-label", chart.title + " in the last five minutes; now " + now.join(", "));
  }
}

// ---- the state

let last = null; // the answer before
let samples = []; // rates, a sample for each answer but the first
let history = []; // the answers themselves, for the last five minutes
let lastWarning = 0;
let touchedInstance = false;
let timer = 0;

const totals = (state) => ({
  out: state.sent_bytes + state.http_sent_bytes,
  in: state.received_bytes + state.http_received_bytes,
  requests: state.calls + state.http_ok + state.http_misses + state.http_refused + state.http_failed,
  failed: state.calls_failed + state.http_failed,
  hits: state.action_hits,
  misses: state.action_misses + state.action_incomplete,
  writes: state.blobs_written + state.action_results_written,
  syncs: state.syncs_small + state.syncs_large,
});

function sample(state) {
  const restarted = last !== null && (state.uptime_s < last.uptime_s - 5 || state.calls < last.calls);
  if (restarted) {
    samples = [];
    history = [];
    last = null;
    lastWarning = 0;
    $("warnings").replaceChildren();
  }
  if (last !== null && state.now_ms > last.now_ms) {
    const seconds = (state.now_ms - last.now_ms) / 1000;
    const from = totals(last), to = totals(state), made = {};
    for (const key of Object.keys(to)) made[key] = Math.max(0, (to[key] - from[key]) / seconds);
    samples.push(made);
    samples = samples.slice(-SAMPLES);
  }
  state.blob_hits = state.instances.reduce((sum, of) => sum + of.blob_hits, 0);
  state.blob_misses = state.instances.reduce((sum, of) => sum + of.blob_misses, 0);
  history.push(state);
  history = history.slice(-SAMPLES - 1);
  last = state;
}

function showState(state) {
  const words = { starting: ["Starting", "warn"], serving: ["Serving", "good"], "read-only": ["Read-only", "bad"], draining: ["Draining", "warn"], drained: ["Drained", "warn"] };
  let [word, tone] = words[state.state] || [state.state, "warn"];
  if (state.state === "serving" && state.reason) [word, tone] = ["Degraded", "warn"];
  if (state.stuck) [word, tone] = ["Stuck", "bad"];
  say("state-word", word);
  $("state").className = "state " + tone;
  say("reason", state.reason || (state.stuck ? "Part of the server makes no progress; the log says which." : ""));
  $("reason").hidden = !$("reason").textContent;
  say("about", state.version + " · up " + duration(state.uptime_s));
  document.title = word + " · varve";
}

function showRoom(state) {
  const all = state.capacity_bytes > 0 ? state.capacity_bytes : state.file_bytes + state.disk_free_bytes;
  const part = all > 0 ? Math.min(1, state.file_bytes / all) : 0;
  say("room-used", bytes(state.file_bytes));
  say("room-of", "of " + bytes(all) + (state.capacity_bytes > 0 ? "" : " that the disk has"));
  say("room-per-cent", share(state.file_bytes, all) + " full");
  $("core-used").setAttribute("width", (1000 * part).toFixed(1));
  $("core").setAttribute("aria-label", share(state.file_bytes, all) + " full");
  say("retention", state.segments_evicted > 0
    ? "blobs that nobody asks for stay " + duration(state.retention_s)
    : "nothing had to go yet");
  say("room-entries", count(state.entries) + " blobs and action results" + (state.index_loading ? ", the index is being loaded" : ""));
}

// Of what was asked for in the last five minutes, or since the start if nothing was.
function found(id, hit, miss) {
  const now = history.at(-1), then = history[0];
  let part = now[hit] - then[hit], all = part + miss.reduce((sum, key) => sum + now[key] - then[key], 0);
  const lately = all > 0;
  if (!lately) {
    part = now[hit];
    all = part + miss.reduce((sum, key) => sum + now[key], 0);
  }
  say(id, share(part, all));
  say(id + "-of", all === 0 ? "none asked for yet" : "of " + count(all) + " asked for" + (lately ? " in 5" + NARROW + "min" : " since the start"));
}

function quantile(counts, bounds, q) {
  const all = counts.reduce((sum, n) => sum + n, 0);
  let rank = q * all;
  for (let i = 0; i < counts.length; i++) {
    if (rank <= counts[i] && counts[i] > 0) {
      const low = i === 0 ? 0 : bounds[i - 1];
      return i < bounds.length ? low + (bounds[i] - low) * (rank / counts[i]) : low;
    }
    rank -= counts[i];
  }
  return 0;
}

function showFigures(state) {
  found("action-rate", "action_hits", ["action_misses", "action_incomplete"]);
  found("blob-rate", "blob_hits", ["blob_misses"]);
  const then = history[0].time_counts;
  let counts = state.time_counts.map((n, i) => n - then[i]);
  if (counts.every((n) => n === 0)) counts = state.time_counts;
  if (counts.every((n) => n === 0)) {
    say("time", "–");
    say("time-of", "no requests yet");
  } else {
    say("time", short(quantile(counts, state.time_bounds_us, 0.5)));
    say("time-of", "is the median; 99" + NARROW + "% below " + short(quantile(counts, state.time_bounds_us, 0.99)));
  }
  say("live", count(state.calls_live));
  say("live-of", "calls on " + count(state.connections) + (state.connections === 1 ? " connection" : " connections") +
    (state.calls_waiting > 0 ? "; " + count(state.calls_waiting) + " wait for memory" : "; " + state.buffers_in_use + " of " + state.buffers_max + " buffers in use"));
}

const cell = (label, text, number) => make("td", { "data-label": label, class: number && "number" }, make("span", {}, text));
const instanceName = (name) => name === "" ? make("span", { class: "quiet" }, "(empty)") : make("bdi", {}, name);

function showInstances(state) {
  $("instances-section").hidden = state.instances.length === 0;
  $("instances").replaceChildren(...state.instances.map((of) => make("tr", {},
    make("td", {}, instanceName(of.name)),
    cell("Requests", count(of.requests), true),
    cell("Action hits", share(of.action_hits, of.action_hits + of.action_misses), true),
    cell("Blob hits", share(of.blob_hits, of.blob_hits + of.blob_misses), true),
    cell("In", bytes(of.received_bytes), true),
    cell("Out", bytes(of.sent_bytes), true),
    cell("Failed", count(of.failed), true))));
  const names = state.instances.map((of) => of.name);
  if ([...$("instances-known").children].map((option) => option.value).join("\n") !== names.join("\n"))
    $("instances-known").replaceChildren(...names.map((name) => make("option", { value: name })));
  if (!touchedInstance && document.activeElement !== $("instance") && names.length > 0)
    $("instance").value = state.instances.reduce((a, b) => b.requests > a.requests ? b : a).name;
}

function showPeers(state) {
  const peers = (state.peers || []).map((of) => make("tr", {},
    make("td", {}, make("bdi", {}, of.address)),
    make("td", { class: "about-it" }, "followed, " + of.state, of.error && make("p", { class: "quiet" }, of.error)),
    cell("Behind", of.behind_records > 0 ? count(of.behind_records) + " records, " + bytes(of.behind_bytes) : of.state === "up to date" ? "0" : "–", true),
    cell("Time", duration(of.behind_seconds), true)));
  const followers = (state.followers || []).map((of) => make("tr", {},
    make("td", {}, make("bdi", {}, of.name || of.address)),
    make("td", { class: "about-it" }, of.counts ? "follows this one" : "followed this one, is away", of.error && make("p", { class: "quiet" }, of.error)),
    cell("Behind", of.behind_records > 0 ? count(of.behind_records) + " records" : "0", true),
    cell("Time", "seen " + duration(Math.floor(of.seen_seconds)) + " ago", true)));
  $("peers-section").hidden = peers.length + followers.length === 0;
  $("peers").replaceChildren(...peers, ...followers);
}

// "time=... level=warn event=name key=value ..."; anything else is shown as it is.
function warningOf(line) {
  const parts = /^time=(\S+) level=(\w+) event=(\S+) ?(.*)$/s.exec(line);
  if (parts === null)
    return make("li", { class: "warn" }, make("time", {}, ""), make("strong", {}, line));
  const [, time, level, event, rest] = parts;
  return make("li", { class: level === "error" ? "error" : "warn" },
    make("time", { datetime: time }, time.replace("T", " ").replace(/\.\d+Z$/, " UTC")),
    make("div", {}, make("strong", {}, event.replaceAll("_", " ")), rest !== "" && make("p", {}, rest)));
}

const WARNINGS_SHOWN = 5, WARNINGS_KEPT = 100;

function showWarnings(state) {
  if (!state.all) {
    say("no-warnings", "They are for who may read in all instances.");
    return;
  }
  const list = $("warnings");
  for (const warning of state.warnings || []) {
    if (warning.number <= lastWarning) continue;
    lastWarning = warning.number;
    list.prepend(warningOf(warning.line));
  }
  while (list.children.length > WARNINGS_KEPT) list.lastChild.remove();
  const all = $("more-warnings").dataset.all === "yes";
  [...list.children].forEach((item, i) => { item.hidden = !all && i >= WARNINGS_SHOWN; });
  $("more-warnings").hidden = all || list.children.length <= WARNINGS_SHOWN;
  say("more-warnings", "Show all " + list.children.length);
  $("no-warnings").hidden = list.children.length > 0;
}

function show(state) {
  sample(state);
  showState(state);
  showRoom(state);
  showFigures(state);
  draw(samples);
  showInstances(state);
  showPeers(state);
  showWarnings(state);
}

function refused(text) {
  say("state-word", "Not allowed");
  $("state").className = "state warn";
  say("refused-text", text);
  $("refused").hidden = false;
}

async function poll() {
  clearTimeout(timer);
  if (document.hidden) return; // goes on when it is looked at
  let next = POLL_MS;
  // Not broken off: it may be somebody who types a password.
  const late = setTimeout(() => {
    say("state-word", "Waiting");
    $("state").className = "state warn";
  }, 10000);
  try {
    const answer = await fetch("/page/state.json?after=" + lastWarning, { cache: "no-store" });
    if (answer.status === 401 || answer.status === 403) {
      refused((await answer.text()).trim());
      return; // asking again would only be refused again
    }
    if (!answer.ok) throw new Error(answer.status);
    $("refused").hidden = true;
    show(await answer.json());
  } catch (problem) {
    say("state-word", "No answer");
    $("state").className = "state bad";
    next = 5000;
  } finally {
    clearTimeout(late);
  }
  clearTimeout(timer);
  timer = setTimeout(poll, next);
}

// ---- looking up

function routeOf(hash) {
  if (!hash.startsWith("#/")) return null;
  const given = new URLSearchParams(hash.slice(2));
  let trail = [];
  try {
    trail = JSON.parse(given.get("trail") || "[]").filter((step) => Array.isArray(step) && step.length === 2).map((step) => step.map(String));
  } catch (problem) { /* somebody has written it by hand */ }
  return {
    digest: given.get("digest") || "", instance: given.get("instance") || "", as: given.get("as") || "",
    folder: given.get("folder") || "", offset: Number(given.get("offset")) || 0, trail,
  };
}

function addressOf(route) {
  const given = new URLSearchParams({ digest: route.digest, instance: route.instance });
  for (const key of ["as", "folder", "offset"]) if (route[key]) given.set(key, route[key]);
  if (route.trail && route.trail.length > 0) given.set("trail", JSON.stringify(route.trail));
  return "#/" + given;
}

const link = (route, ...children) => make("a", { href: addressOf(route) }, ...children);

function download(route, hash, name, ...children) {
  const given = new URLSearchParams({ instance: route.instance, digest: hash });
  if (name) given.set("name", name.split("/").at(-1));
  return make("a", { href: "/page/blob?" + given, download: true }, ...children);
}

const gone = () => make("span", { class: "tag bad" }, "not here");
const facts = (...pairs) => make("dl", { class: "facts" }, ...pairs.filter(Boolean).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));

function pager(route, of) {
  if (of.total <= of.page && of.offset === 0) return null;
  const to = Math.min(of.total, of.offset + of.page);
  return make("nav", { class: "pager", "aria-label": "Pages" },
    make("span", { class: "quiet" }, count(Math.min(of.offset + 1, of.total)) + " to " + count(to) + " of " + count(of.total)),
    of.offset > 0 && link({ ...route, offset: Math.max(0, of.offset - of.page) }, "Previous"),
    to < of.total && link({ ...route, offset: to }, "Next"));
}

// What a name in a list leads to.
function leads(route, entry, inTree) {
  const name = make("bdi", {}, entry.name);
  const plain = { digest: entry.hash, instance: route.instance, as: entry.kind };
  if (entry.kind === "symlink" || !entry.hash) return name;
  if (entry.kind === "file") return entry.here ? download(route, entry.hash, entry.name, name) : name;
  if (entry.kind === "tree") return link({ ...plain, trail: [[entry.name, ""]] }, name, "/");
  const trail = [...route.trail, [entry.name, entry.hash]];
  if (inTree) return link({ ...route, folder: entry.hash, offset: 0, trail }, name, "/");
  return link({ ...plain, trail }, name, "/");
}

function entries(route, of, inTree, label) {
  if (of.total === 0) return make("p", { class: "quiet" }, "Nothing in it.");
  return make("div", {}, make("table", { class: "list", "aria-label": label },
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Name"), make("th", { scope: "col", class: "number" }, "Size"))),
    make("tbody", {}, ...of.entries.map((entry) => make("tr", {},
      make("td", {}, leads(route, entry, inTree),
        entry.kind === "symlink" && make("span", { class: "quiet" }, " → ", make("bdi", {}, entry.target)),
        entry.executable && make("span", { class: "tag quiet" }, "executable"),
        entry.here === false && !(inTree && entry.kind === "directory") && gone()),
      make("td", { class: "number" }, entry.kind === "file" && entry.size_bytes !== undefined ? bytes(entry.size_bytes) : ""))))),
    pager(route, of));
}

function output(route, of, inline, name) {
  if (of && of.size_bytes > 0)
    return of.here ? make("span", {}, download(route, of.hash, name, "Download"), ", " + bytes(of.size_bytes)) : make("span", {}, bytes(of.size_bytes), gone());
  return inline > 0 ? bytes(inline) + ", inside of the result" : make("span", { class: "quiet" }, "nothing");
}

function ran(execution) {
  const took = execution.completed_ms && execution.started_ms ? duration((execution.completed_ms - execution.started_ms) / 1000) : null;
  return make("span", {}, took || "", took && execution.worker ? " on " : "", make("bdi", {}, execution.worker));
}

function actionResult(route, action) {
  const made = make("section", {}, make("h3", {}, "Action result"));
  const writer = make("span", {}, when(action.written_ms), action.writer && " by ", action.writer && make("bdi", {}, action.writer));
  if (action.opaque) {
    made.append(facts(["Written", writer], ["On node", action.node], ["Size", bytes(action.size_bytes)]),
      make("p", { class: "quiet" }, "It is no ActionResult but a value that a client has put there."));
    return made;
  }
  if (action.entries === undefined) {
    made.append(facts(["Written", writer], ["On node", action.node]), make("p", { class: "quiet" }, "It says nothing: no outputs, exit code 0."));
    return made;
  }
  const exit = make("span", {}, String(action.exit_code), action.exit_code !== 0 && make("span", { class: "tag bad" }, "failed"));
  made.append(facts(["Exit code", exit], ["Written", writer], ["On node", action.node],
    action.execution && (action.execution.worker || action.execution.completed_ms) && ["Ran", ran(action.execution)],
    ["stdout", output(route, action.stdout, action.stdout_inline_bytes, "stdout.txt")],
    ["stderr", output(route, action.stderr, action.stderr_inline_bytes, "stderr.txt")]),
    make("section", {}, make("h3", {}, action.total === 1 ? "1 output" : count(action.total) + " outputs"), entries({ ...route, trail: [] }, action, false, "Outputs")));
  return made;
}

const pairs = (list) => make("dl", { class: "facts" }, ...list.flatMap((of) => [make("dt", {}, make("bdi", {}, of.name)), make("dd", {}, make("bdi", {}, of.value))]));

function commandOf(route, of) {
  const made = make("section", {}, make("h3", {}, "Command"),
    make("ol", { class: "arguments", "aria-label": "Arguments" }, ...of.arguments.map((text) => make("li", {}, make("bdi", {}, text)))),
    pager(route, of) || "");
  const outputs = [...of.output_paths, ...of.output_files, ...of.output_directories];
  made.append(facts(of.working_directory && ["Working directory", make("bdi", {}, of.working_directory)]));
  if (of.environment.length > 0) made.append(make("section", {}, make("h3", {}, "Environment"), pairs(of.environment)));
  if (outputs.length > 0)
    made.append(make("section", {}, make("h3", {}, "Outputs"), make("ol", { class: "arguments" }, ...outputs.map((text) => make("li", {}, make("bdi", {}, text))))));
  if (of.platform.length > 0) made.append(make("section", {}, make("h3", {}, "Platform"), pairs(of.platform)));
  return made;
}

function actionOf(route, of) {
  const to = (digest, as, text) => digest.here
    ? link({ digest: digest.hash, instance: route.instance, as, trail: as === "directory" ? [["inputs", digest.hash]] : [] }, text)
    : make("span", {}, text, gone());
  const made = make("section", {}, make("h3", {}, "Action"), facts(
    of.command && ["Command", to(of.command, "command", "what it runs")],
    of.input_root && ["Inputs", to(of.input_root, "directory", "the folder it runs in")],
    of.timeout_s > 0 && ["Time limit", duration(of.timeout_s)],
    of.do_not_cache && ["Result", "not to be cached"]));
  if (of.platform.length > 0) made.append(make("section", {}, make("h3", {}, "Platform"), pairs(of.platform)));
  return made;
}

function crumbs(route) {
  if (route.trail.length === 0) return null;
  return make("nav", { "aria-label": "Folder" }, make("ol", { class: "crumbs" }, ...route.trail.map(([name, hash], i) => {
    const isLast = i + 1 === route.trail.length;
    const trail = route.trail.slice(0, i + 1);
    const inTree = route.as === "tree";
    const to = inTree ? { ...route, folder: hash, offset: 0, trail } : { ...route, digest: hash, offset: 0, trail };
    const text = make("bdi", {}, name || "(root)");
    return make("li", {}, isLast ? make("span", { "aria-current": "page" }, text) : link(to, text));
  })));
}

function folderOf(route, of) {
  const inTree = of.kind === "tree";
  const start = route.trail.length > 0 ? route : { ...route, as: of.kind, trail: [["(root)", inTree ? "" : route.digest]] };
  if (inTree && !of.folder_found) return make("section", {}, make("p", {}, "The tree has no such folder."));
  return make("section", {}, make("h3", {}, inTree ? "Folder of a tree" : "Folder"), crumbs(route) || "", entries(start, of, inTree, "Folder"));
}

function blobOf(route, hash, of) {
  if (of.kind === "action") return actionOf(route, of);
  if (of.kind === "command") return commandOf(route, of);
  if (of.kind === "directory" || of.kind === "tree") return folderOf(route, of);
  return make("section", {}, make("h3", {}, "Blob"), make("p", {}, bytes(of.size_bytes) + " of data."));
}

function summaryOf(found) {
  const parts = [];
  if (found.action) parts.push(found.action.opaque ? "a stored value" : "an action result with " + (found.action.total || 0) + " outputs");
  if (found.blob) parts.push({ action: "an action", command: "a command", directory: "a folder with " + found.blob.total + " entries", tree: "a tree, here a folder with " + found.blob.total + " entries", data: "data" }[found.blob.kind]);
  return "Found " + parts.join(" and ") + ".";
}

let asked = 0;

async function lookUp(route, focus) {
  const mine = ++asked;
  const result = $("result");
  const given = new URLSearchParams({ digest: route.digest, instance: route.instance });
  for (const key of ["as", "folder", "offset"]) if (route[key]) given.set(key, route[key]);
  say("wrong", "");
  let answer, text;
  try {
    answer = await fetch("/page/lookup.json?" + given, { cache: "no-store" });
    text = await answer.text();
  } catch (problem) {
    text = "No answer.";
  }
  if (mine !== asked) return; // something else was asked for meanwhile
  result.replaceChildren();
  result.hidden = false;
  const title = make("h3", { tabindex: "-1", class: "hash" }, make("bdi", {}, route.digest.split("/")[0]));
  if (!answer || !answer.ok) {
    const why = answer && answer.status === 404 ? "Neither a blob nor, in this instance, an action result is here by this digest." : text.trim();
    result.append(title, make("p", {}, why));
    say("summary", why);
  } else {
    const found = JSON.parse(text);
    result.append(title);
    if (found.blob)
      title.after(make("p", { class: "actions" }, make("span", { class: "quiet" }, bytes(found.blob.size_bytes)), download(route, found.hash, "", "Download")));
    if (found.action) result.append(actionResult(route, found.action));
    if (found.blob && !(found.action && found.blob.kind === "data")) result.append(blobOf(route, found.hash, found.blob));
    say("summary", summaryOf(found));
  }
  if (focus) title.focus();
}

function follow(focus) {
  const route = routeOf(location.hash);
  if (route === null) return;
  if (route.digest === "") {
    $("result").hidden = true;
    return;
  }
  $("digest").value = route.digest;
  $("instance").value = route.instance;
  touchedInstance = true;
  lookUp(route, focus);
}

function submitted(event) {
  event.preventDefault();
  // Whatever it is pasted with: blobs/HASH/SIZE, a URL, a line of a log.
  const parts = /(?:^|[^0-9a-f])([0-9a-f]{64})(?:[/-](\d+))?(?![0-9a-f])/i.exec($("digest").value);
  if (parts === null) {
    say("wrong", "A digest has 64 hexadecimal digits (SHA-256), and perhaps a slash and a size behind them.");
    $("digest").focus();
    return;
  }
  const to = addressOf({ digest: parts[1].toLowerCase() + (parts[2] ? "/" + parts[2] : ""), instance: $("instance").value.trim() });
  if (location.hash === to) follow(true);
  else location.hash = to;
}

say("host", location.host);
makeCharts();
draw([]);
$("form").addEventListener("submit", submitted);
$("instance").addEventListener("input", () => { touchedInstance = true; });
$("again").addEventListener("click", poll);
$("more-warnings").addEventListener("click", () => {
  $("more-warnings").dataset.all = "yes";
  [...$("warnings").children].forEach((item) => { item.hidden = false; });
  $("more-warnings").hidden = true;
  $("warnings").children[WARNINGS_SHOWN].scrollIntoView({ block: "nearest" });
});
addEventListener("hashchange", () => follow(true));
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
follow(false);
poll();
