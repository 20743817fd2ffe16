// One job: its state and the reason for it, timeline, attempts, payload, result, log lines and history.

import { get } from "./api.js";
import { confirm, toast } from "./dialog.js";
import { cut, h, Keyed, replace, say, set, shown } from "./dom.js";
import { count, full, moment, span } from "./format.js";
import { badge, button, cell, empty, jobLink, jobsPath, setBadge, table } from "./parts.js";
import { Timeline } from "./timeline.js";
import { actOn, tookOf } from "./view_jobs.js";

const ENDED = new Set(["DONE", "FAILED", "CANCELED"]);
const TEXT_SHOWN = 100_000;
const ENTRIES_SHOWN = 200;
const LINES_SHOWN = 500;

export class JobView {
  constructor(page, id) {
    this.page = page;
    this.title = "Job";
    this.job = id; // the stream sends the entries of this job
    this.found = null;
    this.entries = [];
    this.tried = { attempts: [], missing: "" };
    this.timer = 0;
    this.asked = 0; // the numbers of the last request and of the shown one: a late response never replaces a newer one
    this.shown = 0;
    this.isClosed = false;
    this.#build(id);
  }

  #build(id) {
    this.state = badge("–");
    this.cancel = button("Cancel job", () => this.#act("cancel"), { class: "danger", disabled: true, "data-scope": "submit" });
    this.retry = button("Retry job", () => this.#act("retry"), { disabled: true, "data-scope": "submit" });
    this.typeName = h("h1", { tabindex: -1 }, "Job");
    this.why = h("p", { class: "why", role: "status" });
    this.bar = h("progress", { max: 1000, "aria-label": "Progress" });
    this.barText = h("span", { class: "muted" });
    this.progress = h("p", { class: "progress" }, this.bar, this.barText);
    this.facts = h("dl", { class: "pairs" });
    this.timeline = new Timeline();
    const { node, body } = table("History", [["Time", "num"], "Event", "State", "Worker", "Reason"], { class: "tight stack" });
    this.history = node;
    this.rows = new Keyed(body, (entry) => entry.key, entryRow);
    this.logs = h("pre", { class: "data", tabindex: 0, "aria-label": "Log lines" });
    this.payload = h("pre", { class: "data", tabindex: 0, "aria-label": "Payload" });
    this.result = h("pre", { class: "data", tabindex: 0, "aria-label": "Result" });
    const attempts = h("ol", { class: "attempts" });
    this.attempts = new Keyed(attempts, (one) => `${one.token}-${one.outcome}`, attemptItem);
    this.missing = h("p", { class: "hint" });
    const card = (title, ...parts) => h("section", { class: "card", "aria-label": title }, h("h2", {}, title), ...parts);
    this.cards = {
      life: card("Timeline", this.timeline.node),
      attempts: card("Attempts", attempts, this.missing),
      result: card("Result", this.result),
      payload: card("Payload", this.payload),
      logs: card("Log lines", this.logs),
      history: card("History", this.history),
    };
    for (const name of ["attempts", "result", "logs"]) this.cards[name].hidden = true;
    this.body = h("div", { class: "job" },
      h("section", { class: "card", "aria-label": "Details" }, this.why, this.progress, this.facts),
      this.cards.life, this.cards.attempts, h("div", { class: "columns" }, this.cards.payload, this.cards.result), this.cards.logs, this.cards.history);
    const without = h("p", { class: "hint" }, this.page.able.lack("history"));
    without.hidden = this.page.able.has("history");
    this.body.append(without);
    this.body.hidden = true;
    this.trouble = empty("", "trouble");
    this.trouble.hidden = true;
    this.node = h("div", {},
      h("div", { class: "heading" }, this.typeName, this.state, h("span", { class: "grow" }), this.retry, this.cancel),
      h("p", { class: "job-id" }, h("a", { href: "#/jobs" }, "Jobs"), " / ", h("span", { class: "mono", id: "job-id" }, cut(id, 80)),
        button("Copy id", () => this.#copy(id), { class: "quiet" })),
      this.trouble, this.body);
  }

  open() {
    this.#load();
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
  }

  /** The stream was reconnected, so entries may be missing. */
  opened() {
    this.#soon();
  }

  /** Takes new entries of this job. */
  heard(entries) {
    this.entries = this.entries.concat(entries);
    this.#soon();
  }

  stats(stats) {
    if (stats === null || this.found === null || ENDED.has(this.found.status)) return;
    this.#moving();
    this.#whyNot();
  }

  async #copy(id) {
    try {
      await navigator.clipboard.writeText(id);
      toast("Id copied.");
    } catch {
      getSelection().selectAllChildren(document.getElementById("job-id"));
    }
  }

  #soon() {
    clearTimeout(this.timer);
    if (!this.isClosed) this.timer = setTimeout(() => this.#load(), 100);
  }

  async #load() {
    const path = `/jobs/${encodeURIComponent(this.job)}`;
    const turn = (this.asked += 1);
    try {
      const [job, past] = await Promise.all([get(path, {}, { exact: "payload" }), this.#past(path)]);
      if (this.isClosed || turn < this.shown) return;
      this.shown = turn;
      this.found = job;
      this.entries = past.entries;
      this.tried = past;
      this.trouble.hidden = true;
      this.body.hidden = false;
      this.#show();
      this.#whyNot();
      if (ENDED.has(job.status)) this.#ended(await get(`${path}/result`, {}, { exact: "output" }));
    } catch (error) {
      if (this.isClosed || turn < this.shown) return;
      say(this.trouble, error.status === 404 ? "There is no such job; it may have been removed after it ended." : error.message);
      this.trouble.hidden = false;
      this.body.hidden = this.found === null;
    }
  }

  /** Loads the history with all attempts; without a history, only the last attempt. */
  async #past(path) {
    if (this.page.able.has("history")) {
      try {
        return await get(`${path}/history`);
      } catch (error) {
        if (!error.isMissing && error.status !== 404) throw error;
      }
    }
    return { ...(await get(`${path}/attempts`)), entries: [] };
  }

  async #whyNot() {
    try {
      const why = await get(`/jobs/${encodeURIComponent(this.job)}/why`);
      const text = why.explanation.charAt(0).toUpperCase() + why.explanation.slice(1);
      say(this.why, cut(`${text}.`, 600));
      set(this.why, "data-reason", why.reason);
    } catch {
      // other parts of the page report the error
    }
  }

  #show() {
    const job = this.found;
    this.title = job.type;
    document.title = `${shown(job.type)} · Holdfast`;
    say(this.typeName, shown(job.type));
    setBadge(this.state, job.status, job.cancel_requested && !ENDED.has(job.status) ? "cancel requested" : job.status.toLowerCase());
    this.cancel.disabled = ENDED.has(job.status);
    this.retry.disabled = !ENDED.has(job.status);
    replace(this.facts, pairsOf(job, this.page.now).map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
    say(this.payload, data(job.payload, job.payload_base64, "No payload."));
    const steps = this.entries.filter((entry) => entry.what !== "log");
    const lines = this.entries.filter((entry) => entry.what === "log");
    this.cards.logs.hidden = lines.length === 0;
    say(this.logs, lines.slice(-LINES_SHOWN).map((line) => `${moment(line.at_ms, this.page.now)}  ${shown(line.reason)}`).join("\n"));
    this.cards.attempts.hidden = this.tried.attempts.length === 0 && !this.tried.missing;
    this.attempts.show(this.tried.attempts);
    this.missing.hidden = !this.tried.missing;
    say(this.missing, shown(this.tried.missing));
    this.cards.history.hidden = steps.length === 0;
    this.rows.show(steps.slice(-ENTRIES_SHOWN).map((entry, place) => ({ ...entry, key: `${entry.position}-${entry.what}-${entry.token}-${place}` })));
    this.#moving();
  }

  /** Updates the parts that change while the job waits or runs. */
  #moving() {
    const job = this.found;
    this.cards.life.hidden = this.entries.length === 0;
    this.timeline.show(this.entries, this.page.now);
    this.progress.hidden = !job.progress || job.status !== "RUNNING";
    if (this.progress.hidden) return;
    set(this.bar, "value", null);
    if (job.progress.permille >= 0) this.bar.value = job.progress.permille;
    else this.bar.removeAttribute("value");
    say(this.barText, `${job.progress.permille >= 0 ? `${job.progress.permille / 10} % ` : ""}${cut(job.progress.message, 200)}`);
  }

  #ended(result) {
    if (this.isClosed || !result.ready) return;
    const failure = result.status === "FAILED" && result.output && typeof result.output === "object" ? result.output : null;
    const trace = typeof failure?.traceback === "string" ? failure.traceback : "";
    this.cards.result.hidden = false;
    const words = result.summary && !trace ? `${shown(result.summary)}\n\n` : "";
    say(this.result, trace ? shown(`${failure.type}: ${failure.message}`) : words + data(result.output, result.output_base64, words ? "" : "No output."));
  }

  async #act(verb) {
    const isCancel = verb === "cancel";
    const answer = await confirm({
      title: isCancel ? "Cancel this job?" : "Retry this job?",
      text: isCancel
        ? "A waiting job never runs; a running job is asked to stop. This cannot be undone."
        : "The job is submitted again as a new job with the same type and payload.",
      act: isCancel ? "Cancel job" : "Retry job",
      isDanger: isCancel,
      asksReason: isCancel,
    });
    if (answer === null) return;
    try {
      const done = await actOn(this.job, verb, answer.reason);
      if (!isCancel) location.hash = `#/jobs/${encodeURIComponent(done.id)}`;
      toast(isCancel ? (done.was_terminal ? "The job had already ended." : done.status === "RUNNING" ? "The job was asked to stop." : "The job was canceled.") : "The job was submitted again; this is the new job.");
      this.#soon();
    } catch (error) {
      toast(error.message, true);
    }
  }
}

function entryRow(entry) {
  const state = entry.status ? badge(entry.status) : "";
  return {
    node: h("tr", {}, h("td", { "data-label": "Time", class: "num", title: full(entry.at_ms) }, moment(entry.at_ms)), cell("Event", "", cut(entry.what, 60)),
      cell("State", "", state), cell("Worker", "", cut(entry.worker_id, 60)), cell("Reason", "wide", cut(entry.reason, 400))),
    update() {},
  };
}

/** One attempt: its worker, times and outcome, and the traceback if it failed. */
function attemptItem(one) {
  const state = badge(one.outcome);
  const ran = one.started_at_ms && one.ended_at_ms ? `ran ${span(one.ended_at_ms - one.started_at_ms)}` : "";
  const words = [one.worker_id ? `on ${cut(one.worker_id, 80)}` : "", one.started_at_ms ? full(one.started_at_ms) : "", ran];
  const trace = h("pre", { class: "data trace", tabindex: 0, "aria-label": "Traceback" }, shown(one.detail.slice(-TEXT_SHOWN)));
  trace.hidden = !one.detail;
  const reason = h("p", { class: "muted" }, cut(one.reason, 600));
  reason.hidden = !one.reason || one.detail.includes(one.reason);
  return {
    node: h("li", { "aria-label": `Attempt ${one.number}` },
      h("p", {}, h("strong", {}, `Attempt ${one.number}`), " ", state, " ", h("span", { class: "muted" }, words.filter(Boolean).join(" · "))), reason, trace),
    update() {},
  };
}

function pairsOf(job, now) {
  const words = Object.entries(job.labels).map(([name, value]) => h("a", { class: "label", href: jobsPath({ label: `${name}:${value}` }) }, cut(`${name}:${value}`, 120)));
  const headers = Object.entries(job.headers).map(([name, value]) => h("span", { class: "label" }, cut(`${name}: ${value}`, 160)));
  const losses = job.losses ? `, ${count(job.losses)} lost` : "";
  const all = [
    ["Queue", h("a", { href: jobsPath({ queue: job.queue }) }, cut(job.queue, 60))],
    ["Priority", String(job.priority)],
    ["Created", full(job.created_at_ms)],
    ["Due", job.not_before_ms > job.created_at_ms ? full(job.not_before_ms) : ""],
    ["Started", job.started_at_ms ? full(job.started_at_ms) : ""],
    ["Finished", job.finished_at_ms ? full(job.finished_at_ms) : ""],
    ["Waited", job.started_at_ms ? span(job.started_at_ms - job.created_at_ms) : ""],
    ["Ran", job.started_at_ms ? tookOf(job, now) : ""],
    ["Attempts", `${count(job.attempts)} (${count(job.failures)} of ${count(job.max_attempts)} failed${losses})`],
    ["Timeout", job.timeout_s ? span(job.timeout_s * 1_000) : ""],
    ["Worker", job.worker_id ? cut(job.worker_id, 80) : ""],
    ["Failure", job.failure_reason ? h("span", { class: "trouble" }, cut(job.failure_reason, 600)) : ""],
    ["Labels", words.length ? h("span", {}, words) : ""],
    ["Headers", headers.length ? h("span", {}, headers) : ""],
    ["Unique key", cut(job.unique_key, 120)],
    ["Request id", cut(job.request_id, 120)],
    ["Retry of", job.retry_of ? jobLink(job.retry_of) : ""],
  ];
  return all.filter(([, value]) => value !== "");
}

/** Returns a payload or an output as text, cut to a length that the page can show. */
function data(value, base64, nothing) {
  if (base64) return `${base64.slice(0, TEXT_SHOWN)}\n\n(base64, because it is not JSON)`;
  if (value === null || value === undefined) return nothing;
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return text.length > TEXT_SHOWN ? `${shown(text.slice(0, TEXT_SHOWN))}\n\n… ${count(text.length - TEXT_SHOWN)} more characters` : shown(text);
}
