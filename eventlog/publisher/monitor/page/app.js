"use strict";

// The status page of one publisher. It reads JSON from its own server and writes text nodes only: nothing that comes
// from the log is ever taken for markup.

const LOOK_EVERY = 2000;
const HOUR = 3600;
const HIDDEN = "•••";
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

let samples = [];
let interval = 5;
let lastAnswer = null;
let isConsumer = false; // whether the page is of a consumer of the log, and not of its publisher
let startedAt = null; // when the process started
let failedSeen = null; // rows refused or bad, as they were counted when the errors were asked for last
const charts = [];

// --- numbers and times for people ---

function sum(numbers) {
  return Object.values(numbers).reduce((total, each) => total + each, 0);
}

function count(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) >= 10000) return Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
  return Intl.NumberFormat("en", { maximumFractionDigits: value < 10 ? 1 : 0 }).format(value);
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${(value / 3600).toFixed(1)} h`;
  return `${Math.round(value / 86400)} days`;
}

// In the reader's zone, in the form of ISO 8601.
function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("sv");
}

// A time in the reader's zone, with UTC, as in log lines and error rows, on hover. `at` is seconds since 1970, or a text in
// UTC with or without its zone. A time of another day has its date.
function moment(at) {
  if (at === null || at === undefined) return element("span", "–");
  const date = typeof at === "number" ? new Date(at * 1000) : new Date(/(Z|[+-]\d\d:\d\d)$/.test(at) ? at : `${at.replace(" ", "T")}Z`);
  const isToday = date.toDateString() === new Date().toDateString();
  const made = element("time", isToday ? date.toLocaleTimeString("sv") : date.toLocaleString("sv"));
  made.dateTime = date.toISOString();
  made.title = `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  return made;
}

// --- elements ---

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function show(parent, ...children) {
  parent.replaceChildren(...children);
}

// Columns are [title, (row) => value or element, class]; what is unchanged is left alone, so that a selection stays.
// Fields that change each second are no reason to replace a row: only their cells are written again.
function table(parent, columns, rows, none, changing = []) {
  const key = JSON.stringify(rows, (name, value) => (changing.includes(name) ? undefined : value));
  if (parent.dataset.shown === key) {
    if (changing.length) rows.forEach((row, place) => columns.forEach(([, value], column) => {
      const content = value(row);
      const cell = parent.querySelectorAll("tbody tr")[place].cells[column];
      if (!(content instanceof Node) && cell.textContent !== content) cell.textContent = content ?? "–";
    }));
    return;
  }
  parent.dataset.shown = key;
  if (!rows.length) return show(parent, element("p", none, "none"));
  const made = element("table");
  const head = made.createTHead().insertRow();
  for (const [title, , className] of columns) {
    const cell = element("th", title, className);
    cell.scope = "col";
    head.append(cell);
  }
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const [title, value, className] of columns) {
      const cell = line.insertCell();
      cell.dataset.title = title; // on a narrow screen a row is a card, and each cell says what it is
      if (className) cell.className = className;
      const content = value(row);
      cell.append(content instanceof Node ? content : document.createTextNode(content ?? "–"));
    }
  }
  show(parent, made);
}

// After a change of the page: a region that scrolls can be reached by the keyboard, and the legend of what is hidden is
// shown if anything is.
function settle() {
  $("hidden-values").hidden = ![...document.querySelectorAll(".table, .card")].some((one) => one.textContent.includes(HIDDEN));
  for (const one of document.querySelectorAll(".table, pre")) {
    if (one.scrollWidth > one.clientWidth + 1) one.tabIndex = 0;
    else one.removeAttribute("tabindex");
  }
}

// --- events ---

// A link to the page of an event. The event-id of an object in a snapshot names a key, and leads nowhere without it.
function eventLink(id, text) {
  if (!id || /^snapshot\.[^.]*\.[^.]*$/.test(id)) return element("span", text ?? id);
  const made = element("a", text ?? id);
  made.href = `#event/${encodeURIComponent(id)}`;
  return made;
}

function eventLinks(ids, between = ", ") {
  const all = element("span");
  ids.forEach((id, place) => all.append(...(place ? [between] : []), eventLink(id)));
  return all;
}

// --- commands ---

// A command for a shell or a statement of SQL; anything else is a sentence.
const COMMAND = /^(eventlog [a-z](?!.*(, | or |\.\.\.|\()).*|(ALTER|CREATE|DROP|GRANT|ROLLBACK|SELECT|UPDATE|VACUUM) .*)$/s;

function command(text) {
  const block = element("div", null, "command");
  const code = element("code", text);
  const copy = element("button", "Copy");
  copy.type = "button";
  copy.setAttribute("aria-label", `Copy: ${text}`);
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const range = document.createRange(); // without TLS a browser has no clipboard for a page
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  });
  block.append(code, copy);
  return block;
}

// Commands in blocks that hold nothing else, sentences as text.
function fixes(texts) {
  const all = element("div");
  for (const text of texts) if (text) all.append(COMMAND.test(text) ? command(text) : element("p", text));
  return all;
}

// --- curves ---

function svg(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

let limits = {}; // of the health: the value of a curve from which on it is a condition

function makeChart(title, format, first, second, isOfPublisher, limitName) {
  const figure = element("figure", null, "chart");
  const caption = element("figcaption");
  const told = element("span");
  const name = element("b", title);
  if (second) name.append(element("i", "median", "key"), element("i", "99 %", "key second"));
  caption.append(name, told);
  const picture = svg("svg", { viewBox: "0 0 600 150", preserveAspectRatio: "none", role: "img", "aria-label": title });
  figure.append(caption, picture);
  if (isOfPublisher) figure.classList.add("of-publisher");
  $("charts").append(figure);
  const chart = { figure, picture, told, format, first, second, title, limitName };
  picture.tabIndex = 0;
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (step) chart.pointer = Math.min(1, Math.max(0, (chart.pointer ?? 1) + step));
    else if (event.key === "Escape") chart.pointer = undefined;
    else return;
    event.preventDefault();
    draw(chart);
  });
  picture.addEventListener("blur", () => { chart.pointer = undefined; draw(chart); });
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    chart.pointer = (event.clientX - box.left) / box.width;
    draw(chart);
  });
  picture.addEventListener("pointerleave", () => {
    chart.pointer = undefined;
    draw(chart);
  });
  charts.push(chart);
}

// A curve per consumer, of the rows that it has to do; the samples get a field for each.
const consumerCharts = new Set();

function makeConsumerCharts() {
  for (const sample of samples) for (const [name, rows] of Object.entries(sample.consumers)) {
    sample[`consumer ${name}`] = rows;
    if (consumerCharts.has(name) || consumerCharts.size >= 6) continue;
    consumerCharts.add(name);
    makeChart(`Rows that consumer ${name} has to do`, count, `consumer ${name}`, null, true);
  }
}

function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((top) => top >= value);
}

function draw(chart) {
  chart.figure.hidden = false; // its width is measured
  const box = chart.picture.getBoundingClientRect();
  const width = Math.max(box.width, 100), height = 150, left = 52, bottom = 18, top = 8;
  chart.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const end = samples.length ? samples[samples.length - 1].at : Date.now() / 1000;
  const begin = Math.max(end - HOUR, samples.length ? samples[0].at : end - 60, 0);
  const span = Math.max(end - begin, 60);
  const values = samples.flatMap((one) => [one[chart.first], chart.second ? one[chart.second] : null]).filter((value) => value !== null && value !== undefined);
  chart.figure.hidden = samples.length < 2 || !values.length;
  if (chart.figure.hidden) return;
  const highest = Math.max(0, ...values);
  const limit = limits[chart.limitName] ?? null;
  const showsLimit = limit !== null && highest > limit / 4; // far below it the curve would be flat
  const most = niceTop(showsLimit ? Math.max(highest, limit) : highest);
  const x = (at) => left + ((at - (end - span)) / span) * (width - left - 6);
  const y = (value) => top + (1 - value / most) * (height - top - bottom);
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const at = y(most * share);
    parts.push(svg("line", { class: "grid", x1: left, x2: width - 6, y1: at, y2: at }));
    parts.push(svg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, chart.format(most * share)));
  }
  if (showsLimit) {
    parts.push(svg("line", { class: "limit", x1: left, x2: width - 6, y1: y(limit), y2: y(limit) }));
    parts.push(svg("text", { class: "limit-text", x: width - 8, y: y(limit) + 13, "text-anchor": "end" }, `limit ${chart.format(limit)}`));
  }
  parts.push(svg("text", { x: left, y: height - 4 }, `${seconds(span)} ago`));
  parts.push(svg("text", { x: width - 6, y: height - 4, "text-anchor": "end" }, "now"));
  for (const [name, className] of [[chart.second, "second"], [chart.first, "first"]]) {
    if (!name) continue;
    let path = "", area = "", previous = null;
    const close = () => { if (previous !== null) area += `L${x(previous).toFixed(1)} ${y(0)}Z`; };
    for (const one of samples) {
      const value = one[name];
      if (value === null || value === undefined) { close(); previous = null; continue; }
      const at = `${x(one.at).toFixed(1)} ${y(value).toFixed(1)}`;
      path += (previous === null ? "M" : "L") + at;
      area += `${previous === null ? `M${x(one.at).toFixed(1)} ${y(0)}` : ""}L${at}`;
      previous = one.at;
    }
    close();
    if (!path) continue;
    if (className === "first") parts.push(svg("path", { class: "area", d: area }));
    parts.push(svg("path", { class: className, d: path }));
  }
  let shown = samples[samples.length - 1];
  if (chart.pointer !== undefined && samples.length) {
    const wanted = end - span + ((chart.pointer * width - left) / (width - left - 6)) * span;
    shown = samples.reduce((best, one) => (Math.abs(one.at - wanted) < Math.abs(best.at - wanted) ? one : best));
    parts.push(svg("line", { class: "cursor", x1: x(shown.at), x2: x(shown.at), y1: top, y2: height - bottom }));
  }
  if (shown) {
    const more = chart.second ? `, 99 % ${chart.format(shown[chart.second])}` : "";
    const bound = limit === null ? "" : `, limit ${chart.format(limit)}`;
    chart.told.textContent = `${chart.format(shown[chart.first])}${more}${bound}${chart.pointer === undefined ? "" : ` at ${clock(shown.at)}`}`;
    chart.picture.setAttribute("aria-label", `${chart.title}: ${chart.told.textContent}`);
  }
  chart.picture.replaceChildren(...parts);
}

// --- what the publisher does ---

const KINDS = { ok: "is-good", warning: "is-warn", error: "is-bad" };

// The worst condition is the sentence, with what to do; the others follow.
function showHealth(status) {
  const health = status.health;
  $("now").className = KINDS[health.severity];
  const [first, ...others] = health.conditions; // the others are below
  const words = first ? first.text : health.sentence;
  if ($("words").textContent !== words) $("words").textContent = words;
  document.title = health.severity === "ok" ? `${stateOf(status)} · ${status.log}` : `${health.severity}: ${words} · ${status.log}`;
  // Texts change each second while a receiver is waited for; the commands below them stay, so that they can be copied.
  const key = JSON.stringify(health.conditions.map((one) => [one.name, one.action, one.commands, one.details]));
  if ($("now").dataset.shown !== key) {
    $("now").dataset.shown = key;
    show($("advice"), ...(first ? [element("p", first.action), ...first.commands.map(command), ...details(first)] : []));
    $("conditions").hidden = !others.length;
    show($("conditions"), ...others.map((one) => {
      const item = element("li");
      const line = element("p");
      line.append(element("span", `${one.severity}: `, `severity severity-${one.severity}`), element("span", one.text, "condition-text"));
      item.append(line, element("p", one.action, "hint"), ...one.commands.map(command), ...details(one));
      return item;
    }));
  }
  $("conditions").querySelectorAll(".condition-text").forEach((line, place) => {
    if (line.textContent !== others[place].text) line.textContent = others[place].text;
  });
}

// All that is known, folded: the driver of a database has eight lines.
function details(condition) {
  if (!condition.details) return [];
  const made = element("details");
  made.append(element("summary", "Details"), element("pre", condition.details));
  return [made];
}

// A publisher at rest beside a queue that is not empty lets its rows wait.
function stateOf(status) {
  return status.state.name === "resting" && status.queue_rows ? "waiting" : status.state.name;
}

function showStatus(status) {
  // Samples of an earlier process are no figures of this one.
  if (startedAt !== status.started_at) samples = samples.filter((one) => one.at >= Date.parse(status.started_at) / 1000);
  startedAt = status.started_at;
  $("log").textContent = status.log;
  $("about").textContent = `to ${status.sink} as ${status.format} · eventlog ${status.eventlog}`;
  limits = status.limits ?? {};
  showHealth(status);
  document.dispatchEvent(new CustomEvent("shows-status", { detail: status }));
  const newest = samples[samples.length - 1];
  document.body.classList.toggle("is-job", status.job !== null);
  document.body.classList.toggle("is-source", status.source !== null);
  if (status.job) return showJob(status, newest);
  isConsumer = status.ranges !== null;
  // Tiles and curves are of one look: the newest sample has both. Before there is one, the status has what there is.
  const looked = newest || status;
  const isCapped = looked.queue_rows !== null && looked.queue_rows >= status.queue_cap;
  const age = status.checked_seconds_ago > 3 * interval + 5 ? `, ${seconds(status.checked_seconds_ago)} ago` : "";
  const done = status.counters;
  const isOld = looked.oldest_seconds > (limits.oldest_seconds ?? Infinity);
  // One number for refused rows, the one of the health.
  const failedRows = status.refused_rows + status.invalid_rows + (status.source_lag === null ? 0 : done.answers_error + done.answers_fatal + done.rows_invalid);
  $("errors-count").textContent = failedRows ? `(${count(failedRows)} refused or invalid)` : "";
  const large = [
    ["state", stateOf(status), stateOf(status) === "waiting" ? "is-warn" : ""],
    status.source_lag === null
      ? [`${isConsumer ? "rows to do" : "rows in the queue"}${isCapped ? ", or more" : ""}${age}`, count(looked.queue_rows) + (isCapped ? "+" : "")]
      : [`${status.source_lag_unit} after the position${age}`, count(status.source_lag)],
    ["oldest row waits for", looked.oldest_seconds ? seconds(looked.oldest_seconds) : "none", isOld ? "is-warn" : ""],
    ["refused or invalid", count(failedRows), failedRows ? "is-warn" : ""],
  ];
  const small = [
    ["rows a second", newest ? count(newest.rows_per_second) : "–"],
    ["rows published since the start", count(done.rows_success + done.rows_warning)],
    ["last progress", `${seconds(status.progress_seconds)} ago`],
  ];
  // Objects of a snapshot are not rows: their answers are counted alone.
  const failed = done.rows_error + done.rows_fatal + done.rows_invalid + done.answers_error + done.answers_fatal + status.refused_rows + status.invalid_rows;
  if (failed !== failedSeen && (status.queue_rows !== null || status.source !== null)) askErrors(failed);
  if (status.oldest_open_transaction_age_seconds !== null) small.push([`oldest open writer${status.oldest_open_transaction ? `, ${status.oldest_open_transaction}` : ""}`, seconds(status.oldest_open_transaction_age_seconds)]);
  if (status.oldest_snapshot !== null) small.push([`oldest snapshot, ${status.oldest_snapshot}`, seconds(status.oldest_snapshot_age_seconds)]);
  if (status.dead_rows !== null) small.push(["dead rows of the log and its internal tables", count(sum(status.dead_rows))]);
  if (status.table_bytes !== null) small.push(["bytes of the log and its internal tables", count(sum(status.table_bytes))]);
  if (status.bytes_in_a_day !== null) small.push(["bytes that the log grows in a day", count(Math.round(status.bytes_in_a_day))]);
  if (status.keep_bytes !== null) small.push(["bytes that the log may have (keep_bytes)", count(status.keep_bytes)]);
  if (status.keep_bytes_reached_seconds !== null) small.push(["until the log has keep_bytes", seconds(status.keep_bytes_reached_seconds)]);
  if (isConsumer) small.push(["ranges in the consumer's set", count(status.ranges)]);
  if (status.snapshot !== null && status.snapshot.class !== null)
    small.push([`objects of ${status.snapshot.class} read, of about ${count(status.snapshot.expected)}`, count(status.snapshot.objects)]);
  for (const one of status.verified ?? [])
    small.push([[`${one.target}, verified `, moment(one.ended), ...(one.verified_through ? [" through ", moment(one.verified_through)] : [])], one.result]);
  showTiles(large, small);
  $("consumers-section").hidden = !status.consumers?.length;
  table($("consumers"), [
    ["consumer", (one) => one.name], ["process", (one) => element("span", one.runs ? "runs" : "does not run", one.runs ? "" : "severity-warning")],
    ["rows to do", (one) => count(one.rows_behind), "number"], ["first of them", (one) => (one.oldest_row === null ? "none" : eventLink(String(one.oldest_row), `row ${one.oldest_row}`))],
    ["waits for", (one) => (one.oldest_seconds === null ? "–" : seconds(one.oldest_seconds))],
    ["last moved", (one) => `${seconds(one.still_seconds)} ago`], ["ranges", (one) => count(one.ranges), "number"],
    ["snapshot", (one) => (one.snapshot === null ? "–" : one.snapshot.class === null ? "between two classes" : `${count(one.snapshot.objects)} of about ${count(one.snapshot.expected)} of ${one.snapshot.class}`)],
  ], status.consumers ?? [], "");
  $("uncaptured").hidden = !status.drift?.length;
  table($("uncaptured-tables"), [["Table", (one) => one, "text"]], status.drift ?? [], "");
  $("parked-section").hidden = !status.parked_objects;
  $("parked-count").textContent = status.parked_objects ? `(${status.parked_objects})` : "";
  table($("parked"), [
    ["class", (one) => one.class], ["last answer", (one) => one.answer || "retry", "text"], ["objects", (one) => count(one.objects), "number"],
    ["attempts", (one) => count(one.attempts), "number"], ["next try in", (one) => seconds(one.next_try_seconds)],
    ["events", (one) => eventLinks(one.events)],
    ["to give the events up", (one) => (one.command ? command(one.command) : "–"), "text"],
  ], status.parked_groups, "None.", ["next_try_seconds", "attempts"]);
  table($("deliveries"), [
    ["delivery", (one) => one.number], ["events", (one) => count(one.events), "number"], ["rows", (one) => count(one.rows), "number"],
    ["first event", (one) => (one.first_id ? eventLink(one.first_id) : "–")],
    ["in flight for", (one) => seconds(one.seconds)],
  ], status.deliveries, "Nothing is in flight.", ["seconds"]);
  if (!documentsAsked) showDocuments(status.sent.slice(0, 12), "Nothing has been sent yet.");
  settle();
}

function showDocuments(documents, none) {
  table($("sent"), [
    ["at", (one) => moment(one.at)], ["delivery", (one) => one.delivery], ["document", (one) => one.document],
    ["events", (one) => count(one.events), "number"], ["event-ids", (one) => eventLinks([...new Set([one.first_id, one.last_id])], " to ")],
    ["answer after", (one) => seconds(one.seconds)], ["answer", (one) => element("span", one.level, `level-${one.level}`)], ["reason", (one) => one.reason, "text"],
  ], documents, none);
}

// A backlog job has a stage and an end; it has no queue of its own, no deliveries and no answers.
function showJob(status, newest) {
  const job = status.job;
  const small = [
    ["rows a second", newest ? count(newest.rows_per_second) : "–"],
    ["last progress", `${seconds(status.progress_seconds)} ago`],
  ];
  if (job.parts) small.push(["parts", job.parts]);
  showTiles([
    ["done", `${Math.floor(job.share * 100)} %`],
    ["time left, about", seconds(job.seconds_left)],
    ["rows", job.total ? `${count(job.rows)} of ${count(job.total)}` : count(job.rows)],
    ["events written", count(job.events)],
  ], small);
}

// Four large figures, each [title, value, class]; the others are small.
function showTiles(large, small) {
  const tiles = element("div", null, "large");
  for (const [title, value, className] of large) {
    const tile = element("div", null, `tile ${className ?? ""}`);
    tile.append(element("span", title), element("b", value));
    tiles.append(tile);
  }
  const list = element("dl", null, "small");
  for (const [title, value] of small) {
    const pair = element("div");
    const term = element("dt");
    term.append(...[title].flat());
    pair.append(term, element("dd", value));
    list.append(pair);
  }
  show($("tiles"), tiles, list);
}

function lose(reason) {
  const since = lastAnswer ? `No answer since ${clock(lastAnswer)}` : "No answer";
  $("lost").textContent = `${since}: ${reason}. The publisher, or the way to it, is gone; what is below is old.`;
  $("lost").hidden = false;
  $("now").className = "is-bad";
  $("words").textContent = "No answer"; // not what it did when it answered
  const state = document.querySelector("#tiles .tile b");
  if (state) state.textContent = "unknown";
  document.title = "no answer · eventlog";
}

async function read(path, patience = 15000) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(patience) });
  if (answer.status === 401) { location.reload(); throw new Error("a token is needed"); }
  const isJson = (answer.headers.get("content-type") || "").startsWith("application/json");
  const body = isJson ? await answer.json() : { error: `the server answered ${answer.status}` };
  if (!answer.ok) throw new Error(body.error || `the server answered ${answer.status}`);
  return body;
}

async function look() {
  try {
    const since = samples.length ? samples[samples.length - 1].at : 0;
    const [status, history] = await Promise.all([read("/status.json"), read(`/history.json?since=${since}`)]);
    interval = history.interval;
    samples = samples.concat(history.samples).slice(-Math.ceil(HOUR / interval));
    lastAnswer = Date.now() / 1000;
    $("lost").hidden = true;
    showStatus(status);
    makeConsumerCharts();
    charts.forEach(draw);
    const id = shownEvent();
    if (id) showSeen(await read(`/seen/${encodeURIComponent(id)}.json`));
  } catch (error) {
    lose(error.name === "TypeError" ? "the server cannot be reached" : error.message);
  }
  setTimeout(look, LOOK_EVERY);
}

// --- what the database is asked for ---

// One question after another: the server answers one at a time.
let asked = Promise.resolve();

function onAsk(button, place, path, render) {
  const ask = async () => {
    button.disabled = true;
    const before = asked;
    let done;
    asked = new Promise((resolve) => { done = resolve; });
    await before;
    try {
      render(await read(path(), 60000));
    } catch (error) {
      delete place.dataset.shown;
      show(place, element("p", error.message, "level-error"));
    } finally {
      done();
      button.disabled = false;
      settle();
    }
  };
  const pressed = (event) => { event.preventDefault(); ask(); };
  button.form ? button.form.addEventListener("submit", pressed) : button.addEventListener("click", pressed);
  return ask;
}

// Rows E and F of before the start are shown without a press, and those that come while the page is open. What is refused
// while others are loaded is asked for at the next poll.
function askErrors(failed) {
  if ($("ask-errors").disabled) return;
  failedSeen = failed;
  loadErrors();
}

onAsk($("ask-queue"), $("queue"), () => "/queue.json", (found) => {
  $("queue-hint").textContent = found.newest < found.most ? `All ${found.newest.toLocaleString("en")} rows of the log.` : `The newest ${found.most.toLocaleString("en")} rows of the log.`;
  if (isConsumer) $("queue-hint").textContent += " The letters are the publisher's; a consumer has none.";
  table($("queue"), [
    ["class", (one) => one.class], ["status", (one) => `${one.status} ${one.meaning}`], ["rows", (one) => count(one.rows), "number"],
  ], found.rows, "The log is empty.");
});

function example(one) {
  const all = element("span");
  all.append(eventLink(String(one.example), `${typeof one.example === "number" ? "row " : ""}${one.example}`), `: ${one.message}`);
  return all;
}

const loadErrors = onAsk($("ask-errors"), $("errors"), () => "/errors.json", (found) => {
  $("errors-hint").textContent = `What was refused, by class and answer. Searched: ${found.searched}.`;
  table($("errors"), [
    ["class", (one) => one.table_name], ["answer", (one) => (one.code === "receiver" ? "refused by the receiver" : one.code)], ["status", (one) => one.status], ["rows", (one) => count(one.rows), "number"],
    ["newest", (one) => moment(one.newest)], ["for example", (one) => example(one), "text"], ["once the cause is fixed", (one) => { const all = element("div"); all.append(...one.commands.map(command)); return all; }, "text"],
  ], found.errors, "No row was refused.");
});

onAsk($("ask-doctor"), $("doctor"), () => "/doctor.json", (found) => table($("doctor"), [
  ["severity", (one) => element("span", one.level, `level-${one.level}`)], ["code", (one) => one.code],
  ["what", (one) => one.message, "text"], ["what fixes it", (one) => fixes(one.fix), "text"],
], found.findings, "Nothing is wrong."));

// --- lists, the newest first, paged by key ---

// A form whose button lists, and a second one that goes on before the last key. `keep` adds to what is shown.
function paged(form, older, place, path, render) {
  let before = null;
  const show = (found) => {
    before = found.older;
    older.hidden = before === null;
    render(found);
  };
  onAsk(form.querySelector("button"), place, () => path(""), show);
  onAsk(older, place, () => path(`&before=${before}`), show);
}

const query = (names) => names.map((one) => `${one}=${encodeURIComponent($(`list-${one}`).value.trim())}`).join("&");

paged($("list-form"), $("list-older"), $("list"), (before) => `/rows.json?${query(["class", "status", "since", "until"])}${before}`, (found) => {
  $("list-hint").textContent = `Searched: ${found.searched}.`;
  table($("list"), [
    ["row", (one) => eventLink(String(one.record_id))], ["status", (one) => one.status], ["class", (one) => one.class_name], ["key", (one) => one.key, "text"],
    ["type", (one) => one.event_type], ["column", (one) => one.column_name], ["written at", (one) => one.event_time], ["why refused", (one) => (one.code ? `${one.code}: ${one.message}` : "–"), "text"],
  ], found.rows, "None among these.");
});

let documentsAsked = false; // whether the list shows what was asked for, and not the newest documents

paged($("sent-form"), $("sent-older"), $("sent"), (before) => `/documents.json?answer=${encodeURIComponent($("sent-answer").value)}${before}`, (found) => {
  documentsAsked = $("sent-answer").value !== "" || found.older !== null;
  showDocuments(found.documents, "None of the newest documents.");
});

// --- the page of one event, at #event/ID, and the search ---

function fields(pairs) {
  const list = element("dl", null, "fields");
  for (const [name, value] of pairs) {
    const content = element("dd");
    content.append(value === null ? "NULL" : value instanceof Node ? value : element("code", String(value)));
    list.append(element("dt", name), content);
  }
  return list;
}

function part(title, ...children) {
  const made = element("section");
  made.append(element("h3", title), ...children);
  return made;
}

const AS = {
  in_flight: "As recorded for its delivery; values that are read back are as they are now.",
  queue: "As the next cycle would send it; values that are read back are as they are now.",
  reconstructed: "Reconstructed from the rows that still exist; values that are read back are as they are now.",
};

function showEvent(found) {
  const name = { row: () => `Row ${found.row.record_id}`, object: () => `Object ${found.event_id}`, event: () => `Event ${found.event_id}` }[found.kind]();
  const parts = [element("p", `${name}: ${found.state}`, "state")];
  if (found.problem) parts.push(element("p", `It fails a check: ${found.problem.code}: ${found.problem.message}`, "level-error"));
  for (const note of found.notes) parts.push(element("p", note, "hint"));
  if (found.remedies.length) parts.push(part("What can be done", ...found.remedies.flatMap((one) => [element("p", one.command ? `To ${one.text}:` : `To ${one.text}, see eventlog explain: the command names a key.`), ...(one.command ? [command(one.command)] : [])])));
  for (const error of found.errors) {
    const line = element("p", "Error row of ", "level-error");
    line.append(moment(error.error_time), `: ${error.code}: ${error.message}`);
    parts.push(line);
  }
  show($("event-state"), ...parts);
  showSeen(found.seen);
  const more = [];
  const members = element("div", null, "table");
  if (found.kind === "row") table(members, [
    ["record_id", (one) => eventLink(String(one.record_id))], ["status", (one) => one.status], ["type", (one) => one.event_type], ["column", (one) => one.column_name],
    ["old", (one) => one.old, "text"], ["new", (one) => one.new, "text"], ["what happens to it", (one) => one.outcome, "text"],
  ], found.members, "It is in no group.");
  if (found.kind === "row") more.push(part("Rows of the event", members));
  if (found.class_name) more.push(part("Object", fields([["class", found.class_name], ["key", found.key], ["event-id", found.event_id ?? "none"], ["operation", found.operation ?? "none"], ...(found.read_back ? [["read back", found.read_back.join(", ") || "its existence"]] : [])])));
  if (found.row) more.push(part("Row", fields(Object.entries(found.row))));
  if (found.change) more.push(part("Change", element("pre", JSON.stringify(found.change, null, 1))));
  if (found.document) more.push(part("Document", element("p", AS[found.source] ?? "As it would be sent now.", "hint"), element("pre", found.document)));
  show($("event-more"), ...more);
  document.dispatchEvent(new CustomEvent("shows-event", { detail: found }));
}

// What the process has seen of the event, read again with the status.
function showSeen(seen) {
  $("event-waits").textContent = seen.waits ? `The publisher has it ${seen.waits}.` : "";
  table($("event-attempts"), [
    ["at", (one) => moment(one.at)], ["after", (one) => seconds(one.seconds)], ["delivery", (one) => one.delivery], ["document", (one) => one.document],
    ["events in it", (one) => count(one.events), "number"], ["as event", (one) => one.event_id],
    ["answer", (one) => element("span", one.level, `level-${one.level}`)], ["status", (one) => one.status || "–"], ["message", (one) => one.message || "–", "text"],
    ["beginning of the answer", (one) => (one.answer ? element("code", one.answer) : "–"), "text"],
  ], seen.attempts, "None since the start of the process, or they are too long ago.");
}

const loadEvent = onAsk($("event-again"), $("event-state"), () => `/rows/${encodeURIComponent(shownEvent())}.json`, showEvent);

function shownEvent() {
  return location.hash.startsWith("#event/") ? decodeURIComponent(location.hash.slice(7)) : "";
}

function route() {
  const id = shownEvent();
  document.body.classList.toggle("shows-event", id !== "");
  $("event-section").hidden = id === "";
  if (!id) return;
  $("event-title").textContent = `Event ${id}`;
  show($("event-state"), element("p", "Loading", "none"));
  for (const one of ["event-waits", "event-attempts", "event-more"]) { delete $(one).dataset.shown; show($(one)); }
  $("event-title").focus();
  loadEvent();
}

$("row-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const wanted = `#event/${encodeURIComponent($("record-id").value.trim())}`;
  if (location.hash === wanted) route();
  else location.hash = wanted;
});

onAsk($("search-form").querySelector("button"), $("found"), () => {
  const [name, key] = ["class", "key"].map((one) => $(`search-${one}`).value.trim());
  return `/search.json?key=${encodeURIComponent(name ? `${name}.${key}` : key)}`;
}, (found) => {
  show($("found"), ...found.objects.flatMap((one) => {
    const rows = element("div", null, "table");
    if (one.events) table(rows, [["event", (event) => eventLink(event.event_id)], ["state", (event) => event.state, "text"]], one.events, "None waits.");
    else table(rows, [
      ["row", (row) => eventLink(String(row.record_id))], ["status", (row) => row.status], ["type", (row) => row.event_type], ["column", (row) => row.column_name], ["written at", (row) => row.event_time],
    ], one.rows, "It has no row there.");
    return [element("p", `${one.class_name ? `${one.class_name}, ` : ""}${one.key}. Searched: ${one.searched}.`), ...one.sentences.map((sentence) => element("p", sentence, "hint")), rows];
  }));
});

window.addEventListener("hashchange", route);
makeChart("Rows a second", count, "rows_per_second");
makeChart("Rows that wait", count, "queue_rows");
makeChart("Age of the oldest row", seconds, "oldest_seconds", null, true, "oldest_seconds");
makeChart("Time of a document: median", seconds, "send_duration_median", "send_duration_99", true, "send_duration_seconds");
window.addEventListener("resize", () => {
  charts.forEach(draw);
  settle();
});
route();
look();
