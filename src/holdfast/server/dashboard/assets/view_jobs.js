// The jobs that match the filters, one page at a time; never all of them.

import { forEach, get, post } from "./api.js";
import { confirm, toast } from "./dialog.js";
import { cut, h, Keyed, replace, say, set } from "./dom.js";
import { brief, count, plural, span } from "./format.js";
import { badge, button, cell, empty, heading, jobLink, jobsPath, setAgo, setBadge, table } from "./parts.js";

const STATES = ["QUEUED", "RUNNING", "DONE", "FAILED", "CANCELED"];
const ENDED = new Set(["DONE", "FAILED", "CANCELED"]);
const PAGE = 50;
// A search may read many jobs per match; after this many responses without a full page, the user continues it.
const LOOKS = 20;
// The longest pause between two reloads; the pause grows with the response time.
const CALM_MS_MAX = 15_000;
const TEXTS = [["queue", "Queue"], ["type", "Type"], ["label", "Label", "name:value"]];
const TIMES = [["created_from", "Created from"], ["created_before", "Created before"]];

export class JobsView {
  constructor(page, query) {
    this.page = page;
    this.title = "Jobs";
    this.trail = [];
    this.jobs = [];
    this.chosen = new Set();
    this.position = -1;
    this.tookMs = 0;
    this.askedAt = 0;
    this.asking = null;
    this.submitted = null; // the filters of the address, if the form has set them
    this.#build();
    this.filters = query;
  }

  #build() {
    this.states = STATES.map((state) => h("input", { type: "checkbox", name: "status", value: state, id: `status-${state}` }));
    this.counts = STATES.map(() => h("span", { class: "count" }));
    const chips = STATES.map((state, place) =>
      h("label", { class: "chip", for: `status-${state}` }, this.states[place], badge(state), this.counts[place]));
    this.texts = TEXTS.map(([name, , hint]) => h("input", {
      name, id: `by-${name}`, placeholder: hint ?? "any", autocomplete: "off", spellcheck: "false", list: name === "queue" ? "queue-names" : null,
    }));
    this.times = TIMES.map(([name]) => h("input", { name, id: `by-${name}`, type: "datetime-local", step: 1 }));
    this.order = h("select", { name: "oldest_first", id: "by-order" }, h("option", { value: "" }, "Newest first"), h("option", { value: "true" }, "Oldest first"));
    this.queueNames = h("datalist", { id: "queue-names" });
    const field = (label, input) => h("p", { class: "field" }, h("label", { for: input.id }, label), input);
    this.form = h("form", { class: "filters card", role: "search", "aria-label": "Filter jobs" },
      h("fieldset", { class: "chips" }, h("legend", {}, "State"), chips),
      this.details = h("details", { class: "more" }, h("summary", {}, "More filters"), h("div", { class: "fields" },
        TEXTS.map(([, label], place) => field(label, this.texts[place])),
        TIMES.map(([, label], place) => field(label, this.times[place])),
        field("Order", this.order),
        h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Filter"), button("Clear", () => this.#go(new URLSearchParams()))))),
      this.queueNames);
    this.details.open = matchMedia("(min-width: 761px)").matches;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.form.addEventListener("change", (event) => {
      if (event.target.type === "checkbox" || event.target === this.order) this.#submit();
    });
    const all = h("input", { type: "checkbox", "aria-label": "Select all jobs on this page" });
    all.addEventListener("change", () => this.#choose(this.jobs.map((job) => job.id), all.checked));
    this.all = all;
    const { node, body, heads } = table("Jobs", ["", "State", "Type", "Queue", "Id", ["Created", "num"], ["Duration", "num"], ["Attempts", "num"], "Note"], { class: "jobs stack" });
    replace(heads[0], all);
    this.table = node;
    this.rows = new Keyed(body, (job) => job.id, (job) => this.#row(job));
    this.none = empty("No job matches.");
    this.none.hidden = true;
    this.note = h("p", { class: "hint", role: "status" });
    this.cancel = button("Cancel selected", () => this.#act("cancel"), { class: "danger", "data-scope": "submit" });
    this.retry = button("Retry selected", () => this.#act("retry"), { "data-scope": "submit" });
    this.chosenText = h("span", { role: "status" });
    this.tools = h("div", { class: "tools", role: "toolbar", "aria-label": "Selected jobs" }, this.chosenText, this.cancel, this.retry,
      button("Deselect all", () => this.#choose([...this.chosen], false), { class: "quiet" }));
    this.tools.hidden = true;
    this.back = button("← Back", () => this.#turn(-1));
    this.next = button("Next →", () => this.#turn(1));
    this.more = button("Continue searching", () => this.#load({ isFurther: true }));
    this.more.hidden = true;
    this.node = h("div", {}, heading("Jobs"), this.form, this.tools,
      h("section", { class: "card flush", "aria-label": "Jobs found" }, node, this.none, h("div", { class: "pager" }, this.note, this.more, this.back, this.next)));
  }

  open() {
    this.filter(this.filters);
  }

  close() {
    this.asking?.abort();
  }

  /** Applies other filters, or shows another page. */
  filter(query) {
    this.filters = query;
    if (query.toString() !== this.submitted) {
      this.submitted = null;
      this.#fill(query);
    }
    const plain = new URLSearchParams(query);
    plain.delete("cursor");
    if (plain.toString() !== this.plain) this.trail = [];
    this.plain = plain.toString();
    this.#choose([...this.chosen], false);
    this.#load({});
  }

  /** Writes the filters of the address into the form. */
  #fill(query) {
    const states = new Set(query.getAll("status").flatMap((text) => text.toUpperCase().split(",")));
    this.states.forEach((box) => { box.checked = states.has(box.value); });
    this.texts.forEach((input) => { input.value = query.get(input.name) ?? ""; });
    this.times.forEach((input) => { input.value = local(query.get(input.name)); });
    this.order.value = query.get("oldest_first") === "true" ? "true" : "";
  }

  /** Applies the form. The browser reports the new address later; until then, the form keeps what the user types. */
  #submit() {
    const words = this.#said();
    this.submitted = words.toString();
    this.#go(words);
  }

  /** The stream was reconnected, or there is none: changes may be missing. */
  opened() {
    this.#again();
  }

  #again() {
    const isCalm = Date.now() - this.askedAt > Math.min(Math.max(900, 10 * this.tookMs), CALM_MS_MAX);
    if (isCalm && !this.isSearching && this.more.hidden) this.#load({ isAgain: true });
    else this.#show();
  }

  stats(stats) {
    if (stats === null) return;
    this.counts.forEach((node, place) => say(node, brief(stats.states[STATES[place]] ?? 0)));
    replace(this.queueNames, (this.page.queues ?? []).map((queue) => h("option", { value: queue.name })));
    if (stats.position !== this.position) this.#again();
    else this.#show();
  }

  #said() {
    const words = new URLSearchParams();
    this.states.filter((box) => box.checked).forEach((box) => words.append("status", box.value));
    for (const input of this.texts) if (input.value.trim()) words.set(input.name, input.value.trim());
    for (const input of this.times) if (input.value) words.set(input.name, new Date(input.value).toISOString());
    if (this.order.value) words.set("oldest_first", "true");
    return words;
  }

  #go(words) {
    const path = jobsPath(Object.fromEntries([...new Set(words.keys())].map((name) => [name, words.getAll(name)])));
    if (`#${location.hash.replace(/^#/, "")}` === path) this.#load({});
    else location.hash = path;
  }

  #turn(way) {
    const words = new URLSearchParams(this.filters);
    if (way > 0) {
      this.trail.push(this.filters.get("cursor") ?? "");
      words.set("cursor", this.cursor);
    } else {
      const cursor = this.trail.pop() ?? "";
      if (cursor) words.set("cursor", cursor);
      else words.delete("cursor");
    }
    this.#go(words);
  }

  /** Loads a page; a search with few matches continues for a while. */
  async #load({ isAgain = false, isFurther = false }) {
    if (isAgain && this.asking !== null) return;
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    this.isSearching = !isAgain;
    this.askedAt = Date.now();
    this.position = this.page.live.stats?.position ?? -1;
    const query = Object.fromEntries([...new Set(this.filters.keys())].map((name) => [name, this.filters.getAll(name)]));
    let found = isFurther ? [...this.jobs] : [];
    if (isFurther) query.cursor = this.cursor;
    try {
      for (let look = 0; look < LOOKS; look += 1) {
        const began = performance.now();
        const part = await get("/jobs", { ...query, limit: PAGE - found.length }, { signal: asking.signal });
        this.tookMs = performance.now() - began;
        found = found.concat(part.jobs);
        this.cursor = part.next_cursor;
        query.cursor = part.next_cursor;
        if (found.length >= PAGE || !part.next_cursor) break;
        if (!isAgain) say(this.note, `Searching: ${plural(found.length, "job")} so far`);
      }
      this.trouble = "";
      this.jobs = found;
    } catch (error) {
      if (error.name === "AbortError") return;
      this.trouble = error.message;
      if (!isAgain) this.jobs = [];
    } finally {
      if (this.asking === asking) this.asking = null;
    }
    this.isSearching = false;
    this.#show();
  }

  #show() {
    if (this.isSearching) return;
    const { jobs } = this;
    this.rows.show(jobs);
    const isShort = Boolean(this.cursor) && jobs.length < PAGE;
    this.table.hidden = jobs.length === 0;
    this.none.hidden = jobs.length > 0 || Boolean(this.trouble) || isShort;
    this.more.hidden = !isShort;
    this.back.disabled = !this.filters.get("cursor");
    this.next.disabled = !this.cursor || isShort;
    say(this.note, this.trouble || this.#words(isShort));
    set(this.note, "class", this.trouble ? "trouble" : "hint");
    this.#tools();
  }

  #words(isShort) {
    if (isShort) return `${plural(this.jobs.length, "job")} found so far; there may be more.`;
    const names = [...new Set(this.filters.keys())].filter((name) => !["status", "cursor", "oldest_first"].includes(name));
    const stats = this.page.live.stats;
    if (names.length || !stats) return this.jobs.length ? `${plural(this.jobs.length, "job")} on this page` : "";
    const states = this.states.filter((box) => box.checked).map((box) => box.value);
    const all = (states.length ? states : STATES).reduce((sum, state) => sum + (stats.states[state] ?? 0), 0);
    return `${count(this.jobs.length)} of ${plural(all, "job")}`;
  }

  #row(job) {
    const box = h("input", { type: "checkbox", "aria-label": `Select ${job.id}` });
    box.addEventListener("change", () => this.#choose([job.id], box.checked));
    const state = badge(job.status);
    const [created, took, tries] = [cell("Created", "num created"), cell("Duration", "num took"), cell("Attempts", "num tries")];
    const note = cell("Note", "wide note");
    const node = h("tr", {}, cell("", "pick", box), cell("State", "state", state), cell("Type", "type", cut(job.type, 60)), cell("Queue", "queue", cut(job.queue, 60)),
      cell("Id", "id", jobLink(job.id)), created, took, tries, note);
    return {
      node,
      update: (now) => {
        box.checked = this.chosen.has(now.id);
        set(node, "aria-selected", box.checked ? "true" : null);
        setBadge(state, now.status);
        setAgo(created, now.created_at_ms, this.page.now);
        say(took, tookOf(now, this.page.now));
        say(tries, now.attempts ? String(now.attempts) : "–");
        say(note, noteOf(now));
      },
    };
  }

  #choose(ids, isChosen) {
    for (const id of ids) {
      if (isChosen) this.chosen.add(id);
      else this.chosen.delete(id);
    }
    this.#show();
  }

  #tools() {
    const here = this.jobs.filter((job) => this.chosen.has(job.id));
    this.tools.hidden = here.length === 0;
    this.all.checked = here.length > 0 && here.length === this.jobs.length;
    this.all.indeterminate = here.length > 0 && here.length < this.jobs.length;
    say(this.chosenText, `${plural(here.length, "job")} selected`);
    this.cancel.disabled = !here.some((job) => !ENDED.has(job.status));
    this.retry.disabled = !here.some((job) => ENDED.has(job.status));
  }

  async #act(verb) {
    const isCancel = verb === "cancel";
    const meant = this.jobs.filter((job) => this.chosen.has(job.id) && ENDED.has(job.status) !== isCancel);
    const answer = await confirm({
      title: `${isCancel ? "Cancel" : "Retry"} ${plural(meant.length, "job")}?`,
      text: isCancel
        ? "Waiting jobs never run; running jobs are asked to stop. This cannot be undone."
        : "Each job is submitted again as a new job with the same type and payload.",
      act: isCancel ? `Cancel ${plural(meant.length, "job")}` : `Retry ${plural(meant.length, "job")}`,
      isDanger: isCancel,
      asksReason: isCancel,
    });
    if (answer === null) return;
    const outcomes = await forEach(meant, (job) => actOn(job.id, verb, answer.reason),
      (number) => say(this.chosenText, `${count(number)} of ${plural(meant.length, "job")}`));
    tellOutcomes(outcomes, verb);
    this.#choose(meant.map((job) => job.id), false);
    this.#load({});
  }
}

/** Cancels or retries a job. */
export function actOn(id, verb, reason = "") {
  const path = `/jobs/${encodeURIComponent(id)}/${verb}`;
  if (verb === "cancel") return post(path, { reason });
  return post(path, undefined, { key: crypto.randomUUID?.() ?? `${id}-${Date.now()}` });
}

function tellOutcomes(outcomes, verb) {
  const refused = outcomes.filter((outcome) => outcome.error);
  const late = outcomes.filter((outcome) => outcome.value?.was_terminal);
  const good = outcomes.length - refused.length - late.length;
  const words = [verb === "cancel" ? `${plural(good, "job")} canceled or asked to stop` : `${plural(good, "job")} submitted again`];
  if (late.length) words.push(`${count(late.length)} had already ended`);
  if (refused.length) words.push(`${count(refused.length)} refused: ${refused[0].error.message}`);
  toast(words.join("; "), refused.length > 0);
}

/** The run time of the job, up to now if it is running. */
export function tookOf(job, now) {
  if (!job.started_at_ms) return "–";
  if (job.finished_at_ms) return span(job.finished_at_ms - job.started_at_ms);
  return job.status === "RUNNING" ? span(Math.max(0, now - job.started_at_ms)) : "–";
}

/** The failure reason, cancel request, progress or labels of a job. */
function noteOf(job) {
  if (job.failure_reason) return cut(job.failure_reason, 160);
  if (job.cancel_requested && !ENDED.has(job.status)) return "cancel requested";
  if (job.progress && job.status === "RUNNING") {
    const share = job.progress.permille >= 0 ? `${job.progress.permille / 10} %` : "";
    return cut([share, job.progress.message].filter(Boolean).join(" "), 160);
  }
  return cut(Object.entries(job.labels).map(([name, value]) => `${name}:${value}`).join(" "), 160);
}

/** A time in the format of the browser's date and time field. */
function local(text) {
  const at = text ? new Date(/^\d+$/.test(text) ? Number(text) : text) : null;
  if (at === null || Number.isNaN(at.getTime())) return "";
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
