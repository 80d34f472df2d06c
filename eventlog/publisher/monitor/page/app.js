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

// In UTC, like log lines, `eventlog tail` and error lines.
function clock(at) {
  return `${new Date(at * 1000).toISOString().slice(11, 19)} UTC`;
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
function table(parent, columns, rows, none) {
  const key = JSON.stringify(rows);
  if (parent.dataset.shown === key) return;
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

// --- curves ---

function svg(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function makeChart(title, format, first, second, isOfPublisher) {
  const figure = element("figure", null, "chart");
  const caption = element("figcaption");
  const told = element("span");
  caption.append(element("b", title), told);
  const picture = svg("svg", { viewBox: "0 0 600 150", preserveAspectRatio: "none", role: "img", "aria-label": title });
  figure.append(caption, picture);
  if (isOfPublisher) figure.classList.add("of-publisher");
  $("charts").append(figure);
  const chart = { figure, picture, told, format, first, second, title };
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

function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((top) => top >= value);
}

function draw(chart) {
  const box = chart.picture.getBoundingClientRect();
  const width = Math.max(box.width, 100), height = 150, left = 52, bottom = 18, top = 8;
  chart.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const end = samples.length ? samples[samples.length - 1].at : Date.now() / 1000;
  const begin = Math.max(end - HOUR, samples.length ? samples[0].at : end - 60, 0);
  const span = Math.max(end - begin, 60);
  const values = samples.flatMap((one) => [one[chart.first], chart.second ? one[chart.second] : null]).filter((value) => value !== null);
  const most = niceTop(Math.max(0, ...values));
  const x = (at) => left + ((at - (end - span)) / span) * (width - left - 6);
  const y = (value) => top + (1 - value / most) * (height - top - bottom);
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const at = y(most * share);
    parts.push(svg("line", { class: "grid", x1: left, x2: width - 6, y1: at, y2: at }));
    parts.push(svg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, chart.format(most * share)));
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
    chart.told.textContent = `${chart.format(shown[chart.first])}${more}${chart.pointer === undefined ? "" : ` at ${clock(shown.at)}`}`;
  }
  chart.picture.replaceChildren(...parts);
}

// --- what the publisher does ---

function showStatus(status) {
  $("log").textContent = status.log;
  document.title = `${status.state.name} · ${status.log}`;
  $("about").textContent = `to ${status.sink} as ${status.format} · eventlog ${status.eventlog}`;
  $("words").textContent = status.state.words;
  const kind = !status.is_alive ? "is-bad" : status.state.name === "waiting" || !status.is_ready || status.parked_objects ? "is-warn" : "is-good";
  $("now").className = kind;
  $("hidden-values").hidden = !JSON.stringify(status).includes(HIDDEN);
  const advice = $("advice");
  advice.hidden = status.is_alive;
  if (!status.is_alive) advice.textContent = `No progress for ${seconds(status.progress_seconds)}; a sign was due within ${seconds(status.liveness_timeout_seconds)}.`;
  const newest = samples[samples.length - 1];
  document.body.classList.toggle("is-job", status.job !== null);
  if (status.job) return showJob(status, newest);
  isConsumer = status.ranges !== null;
  // Tiles and curves are of one look: the newest sample has both. Before there is one, the status has what there is.
  const looked = newest || status;
  const isCapped = looked.queue_rows !== null && looked.queue_rows >= status.queue_cap;
  const age = status.checked_seconds_ago > 3 * interval + 5 ? `, ${seconds(status.checked_seconds_ago)} ago` : "";
  const done = status.counters;
  const tiles = [
    ["rows a second", newest ? count(newest.rows_per_second) : "–"],
    status.source_lag === null
      ? [`${isConsumer ? "rows to do" : "rows in the queue"}${isCapped ? ", or more" : ""}${age}`, count(looked.queue_rows) + (isCapped ? "+" : "")]
      : [`${status.source_lag_unit} after the position${age}`, count(status.source_lag)],
    ["oldest row waits for", looked.oldest_seconds ? seconds(looked.oldest_seconds) : "none"],
    ["rows answered success", count(done.rows_success)],
    ["rows answered warning", count(done.rows_warning)],
    ["rows answered error or fatal", count(done.rows_error + done.rows_fatal)],
    ["rows bad, not sent", count(done.rows_invalid)],
    ["last progress", `${seconds(status.progress_seconds)} ago`],
  ];
  if (done.rows_requeued) tiles.splice(7, 0, ["of these put back since", count(done.rows_requeued)]);
  // Objects of a snapshot are not rows: their answers are counted alone.
  const failed = done.rows_error + done.rows_fatal + done.rows_invalid + done.answers_error + done.answers_fatal;
  if (failed !== failedSeen && status.queue_rows !== null) askErrors(failed);
  if (status.oldest_open_transaction_age_seconds !== null) tiles.push([`oldest open writer${status.oldest_open_transaction ? `, ${status.oldest_open_transaction}` : ""}`, seconds(status.oldest_open_transaction_age_seconds)]);
  if (status.oldest_snapshot !== null) tiles.push([`oldest snapshot, ${status.oldest_snapshot}`, seconds(status.oldest_snapshot_age_seconds)]);
  if (status.dead_rows !== null) tiles.push(["dead rows of the log and its internal tables", count(sum(status.dead_rows))]);
  if (status.table_bytes !== null) tiles.push(["bytes of the log and its internal tables", count(sum(status.table_bytes))]);
  if (isConsumer) tiles.push(["ranges in the consumer's set", count(status.ranges)]);
  if (status.snapshot !== null && status.snapshot.class !== null)
    tiles.push([`objects of ${status.snapshot.class} read, of about ${count(status.snapshot.expected)}`, count(status.snapshot.objects)]);
  for (const one of status.verified ?? [])
    tiles.push([`${one.target}, verified ${one.ended} UTC${one.verified_through ? ` through ${one.verified_through}` : ""}`, one.result]);
  showTiles(tiles);
  $("uncaptured").hidden = !status.drift?.length;
  table($("uncaptured-tables"), [["Table", (one) => one]], status.drift ?? [], "");
  $("parked-count").textContent = status.parked_objects ? `(${status.parked_objects})` : "";
  table($("parked"), [
    ["class", (one) => one.class], ["key", (one) => one.key, "text"], ["event-id", (one) => one.event_id], ["attempts", (one) => count(one.attempts), "number"],
    ["next try in", (one) => seconds(one.next_try_seconds)], ["last answer", (one) => one.reason, "text"],
  ], status.parked, "None.");
  table($("deliveries"), [
    ["delivery", (one) => one.number], ["events", (one) => count(one.events), "number"], ["rows", (one) => count(one.rows), "number"],
    ["in flight for", (one) => seconds(one.seconds)],
  ], status.deliveries, "Nothing is in flight.");
  table($("sent"), [
    ["at", (one) => clock(one.at)], ["delivery", (one) => one.delivery], ["document", (one) => one.document],
    ["events", (one) => count(one.events), "number"], ["event-ids", (one) => (one.first_id === one.last_id ? one.first_id : `${one.first_id} to ${one.last_id}`)],
    ["answer after", (one) => seconds(one.seconds)], ["answer", (one) => element("span", one.level, `level-${one.level}`)], ["reason", (one) => one.reason, "text"],
  ], status.sent.slice(0, 12), "Nothing has been sent yet.");
}

// A backlog job has a stage and an end; it has no queue of its own, no deliveries and no answers.
function showJob(status, newest) {
  const job = status.job;
  const tiles = [
    ["done", `${Math.floor(job.share * 100)} %`],
    ["time left, about", seconds(job.seconds_left)],
    ["rows", job.total ? `${count(job.rows)} of ${count(job.total)}` : count(job.rows)],
    ["rows a second", newest ? count(newest.rows_per_second) : "–"],
    ["events written", count(job.events)],
    ["last progress", `${seconds(status.progress_seconds)} ago`],
  ];
  if (job.parts) tiles.push(["parts", job.parts]);
  showTiles(tiles);
}

function showTiles(tiles) {
  show($("tiles"), ...tiles.map(([title, value]) => {
    const tile = element("div", null, "tile");
    tile.append(element("span", title), element("b", value));
    return tile;
  }));
}

function lose(reason) {
  const since = lastAnswer ? `No answer since ${clock(lastAnswer)}` : "No answer";
  $("lost").textContent = `${since}: ${reason}. The publisher, or the way to it, is gone; what is below is old.`;
  $("lost").hidden = false;
  $("now").className = "is-bad";
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
    charts.forEach(draw);
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
    }
  };
  const pressed = (event) => { event.preventDefault(); ask(); };
  button.form ? button.form.addEventListener("submit", pressed) : button.addEventListener("click", pressed);
  return ask;
}

// Rows E and F of before the start are shown without a press, and those that come while the page is open.
function askErrors(failed) {
  failedSeen = failed;
  if (!$("ask-errors").disabled) loadErrors();
}

function command(text) {
  return text ? element("code", text) : "";
}

onAsk($("ask-queue"), $("queue"), () => "/queue.json", (found) => {
  $("queue-hint").textContent = found.newest < found.most ? `All ${found.newest.toLocaleString("en")} rows of the log.` : `The newest ${found.most.toLocaleString("en")} rows of the log.`;
  if (isConsumer) $("queue-hint").textContent += " The letters are the publisher's; a consumer has none.";
  table($("queue"), [
    ["class", (one) => one.class], ["status", (one) => `${one.status} ${one.meaning}`], ["rows", (one) => count(one.rows), "number"],
  ], found.rows, "The log is empty.");
});

const loadErrors = onAsk($("ask-errors"), $("errors"), () => "/errors.json", (found) => {
  const rows = found.errors.reduce((sum, one) => sum + one.rows, 0);
  $("errors-count").textContent = rows ? `(${count(rows)} refused)` : "";
  table($("errors"), [
    ["code", (one) => one.code], ["table", (one) => one.table_name], ["status", (one) => one.status], ["rows", (one) => count(one.rows), "number"],
    ["newest", (one) => one.newest], ["for example", (one) => `${typeof one.example === "number" ? "row " : ""}${one.example}: ${one.message}`, "text"], ["then", (one) => command(one.command), "text"],
  ], found.errors, "No row has an error line.");
});

onAsk($("ask-doctor"), $("doctor"), () => "/doctor.json", (found) => table($("doctor"), [
  ["", (one) => element("span", one.level, `level-${one.level}`)], ["code", (one) => one.code],
  ["what", (one) => one.message, "text"], ["what fixes it", (one) => command(one.command), "text"],
], found.findings, "Nothing is wrong."));

onAsk($("row-form").querySelector("button"), $("row"), () => `/rows/${encodeURIComponent($("record-id").value.trim())}.json`, (found) => {
  const card = element("div", null, "card");
  card.append(element("p", found.row ? `Row ${found.row.record_id}: ${found.state}` : `Object ${found.event_id}: ${found.state}`));
  for (const [name, value] of Object.entries(found.row || {})) {
    if (name === "record_id") continue;
    const line = element("p", `${name}: `);
    line.append(value === null ? "NULL" : element("code", value));
    card.append(line);
  }
  if (found.problem) card.append(element("p", `It fails a check: ${found.problem.code}: ${found.problem.message}`, "level-error"));
  for (const line of found.errors) card.append(element("p", `Error line of ${line.error_time} UTC: ${line.code}: ${line.message}`, "level-error"));
  for (const told of found.answers) card.append(element("p", `At ${clock(told.at)} the receiver answered ${told.level}${told.message ? `: ${told.message}` : ""} (delivery ${told.delivery}, document ${told.document})`, `level-${told.level}`));
  for (const note of found.notes) card.append(element("p", note, "hint"));
  const members = element("div", null, "table");
  table(members, [
    ["record_id", (one) => one.record_id], ["status", (one) => one.status], ["type", (one) => one.event_type], ["column", (one) => one.column_name],
    ["old", (one) => one.old, "text"], ["new", (one) => one.new, "text"], ["what happens to it", (one) => one.outcome, "text"],
  ], found.members, "It is in no group.");
  card.append(members);
  if (found.document) card.append(element("pre", found.document));
  show($("row"), card);
});

makeChart("Rows a second", count, "rows_per_second");
makeChart("Rows that wait", count, "queue_rows");
makeChart("Age of the oldest row", seconds, "oldest_seconds", null, true);
makeChart("Time of a document: median", seconds, "send_duration_median", "send_duration_99", true);
window.addEventListener("resize", () => charts.forEach(draw));
look();
