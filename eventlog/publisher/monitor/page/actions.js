// What a person may do here: pause and resume the reader of the page, and requeue, skip or resync an event. Nothing is shown
// unless the server offers it to this token (/actions.json). app.js says which status and which event it shows.
"use strict";

{
  const at = (id) => document.getElementById(id);
  let offered = { actions: [] };
  let status = null;
  let event = null;

  const act = async (name, asked, done) => {
    at(done).textContent = "…";
    const headers = { "Content-Type": "application/json", "X-Eventlog-Forgery": offered.forgery_token };
    try {
      const answer = await fetch(`/actions/${name}`, { method: "POST", headers, body: JSON.stringify(asked) });
      const found = await answer.json();
      at(done).textContent = answer.ok ? [found.done, ...found.notes].join(". ") : found.error;
      at(done).className = answer.ok ? "" : "level-error";
    } catch (error) {
      at(done).textContent = error.message;
      at(done).className = "level-error";
    }
  };

  const onForm = (id, name, done, asked) => at(id).addEventListener("submit", async (pressed) => {
    pressed.preventDefault();
    const buttons = at(id).querySelectorAll("button");
    buttons.forEach((one) => { one.disabled = true; });
    await act(name, asked(), done);
    buttons.forEach((one) => { one.disabled = false; });
    if (done === "event-done") at("event-again").click();
    else at(id).reset();
  });

  onForm("pause-form", "pause", "reader-done", () => ({ reason: at("pause-reason").value }));
  onForm("resume-form", "resume", "reader-done", () => ({}));
  onForm("requeue-form", "requeue", "event-done", () => rowsOrEvents());
  onForm("resync-form", "resync", "event-done", () => (event.row ? { row: event.row.record_id } : { event: event.event_id }));
  onForm("skip-form", "skip", "event-done", () => ({
    reason: at("skip-reason").value, ...(event.in_flight ? { events: [event.in_flight.event_id] } : rowsOrEvents()),
  }));

  function rowsOrEvents() {
    return event.row ? { rows: [event.row.record_id] } : { events: [event.event_id] };
  }

  function showActions() {
    if (!offered.actions.length) return;
    if (status) {
      at("reader-actions").hidden = status.job !== null;
      at("pause-form").hidden = Boolean(status.paused);
      at("resume-form").hidden = !status.paused;
    }
    if (event) {
      const isRefused = event.errors.length > 0 || (event.row !== null && ["E", "F"].includes(event.row.status));
      at("event-actions").hidden = event.row === null && event.event_id === "•••"; // its id is hidden
      at("requeue-form").hidden = !isRefused;
      at("skip-form").hidden = !isRefused && !event.in_flight;
    }
  }

  document.addEventListener("shows-status", ({ detail }) => {
    status = detail;
    showActions();
  });

  // Until the next event is shown, nothing can be done with the one before.
  window.addEventListener("hashchange", () => {
    event = null;
    at("event-actions").hidden = true;
    at("event-done").textContent = "";
  });

  document.addEventListener("shows-event", ({ detail }) => {
    event = detail;
    showActions();
  });

  fetch("/actions.json", { cache: "no-store" }).then((answer) => answer.json()).then((found) => {
    offered = found;
    showActions();
    if (found.actions.length) at("may-change").textContent = `What you do here is recorded under the name ${found.user}.`;
  }).catch(() => {}); // without an answer there are no actions
}
