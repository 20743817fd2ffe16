// The overview: health, queue depth, age of the oldest job, throughput, latency, and failures by reason.

import { get } from "./api.js";
import { cut, h, Keyed, replace, say, set } from "./dom.js";
import { grouped } from "./failures.js";
import { brief, count, moment, plural, rate, span } from "./format.js";
import { health } from "./health.js";
import { cell, empty, heading, jobLink, jobsPath, setAgo, setBadge, table } from "./parts.js";
import { Plot } from "./plot.js";

const FAILED_LOOKED_AT = 200;
const FAILED_AGAIN_MS = 3_000;
const GROUPS_SHOWN = 8;

export class Overview {
  constructor(page) {
    this.page = page;
    this.title = "Overview";
    this.groups = [];
    this.failedSeen = -1;
    this.failedAt = 0;
    this.word = h("strong", {}, "Loading");
    this.since = h("span", { class: "muted" });
    this.findings = h("ul", { class: "findings" });
    this.health = h("section", { class: "health", "data-level": "unknown", "aria-label": "Health" },
      h("p", { class: "verdict", role: "status" }, h("i", { class: "lamp", "aria-hidden": "true" }), this.word), this.since, this.findings);
    this.facts = Object.fromEntries(FACTS.map(([key, label, href]) => [key, fact(label, href)]));
    this.plots = {
      throughput: new Plot("Throughput (jobs per second)", [
        { name: "submitted", tone: "tone-plain" }, { name: "done", tone: "tone-good", isFilled: true }, { name: "failed", tone: "tone-bad" },
      ], rate, 2),
      latency: new Plot("Latency (95th percentile)", [
        { name: "waiting", tone: "tone-plain" }, { name: "running", tone: "tone-run", isFilled: true },
      ], span, 10),
      depth: new Plot("Queue depth (jobs)", [
        { name: "queued", tone: "tone-plain", isFilled: true }, { name: "running", tone: "tone-run" },
      ], brief, 10),
    };
    this.queues = queueTable();
    this.failures = failureTable();
    this.failuresNote = h("p", { class: "hint" });
    this.queuesCard = h("section", { class: "card", "aria-label": "Queues" }, h("h2", {}, "Queues"), this.queues.node, this.queues.none);
    this.#leaveOut();
    this.node = h("div", { class: "overview" },
      heading("Overview"),
      this.health,
      h("dl", { class: "facts" }, Object.values(this.facts).map((one) => one.node)),
      h("div", { class: "plots" }, Object.values(this.plots).map((plot) => plot.node)),
      this.without,
      h("div", { class: "columns" },
        this.queuesCard,
        h("section", { class: "card", "aria-label": "Failures" }, h("h2", {}, "Failures by reason"), this.failures.node, this.failuresNote)));
  }

  /** Hides what the backend cannot provide, instead of showing zeros. */
  #leaveOut() {
    const { able } = this.page;
    this.without = h("p", { class: "hint" }, able.lack("totals"));
    this.without.hidden = able.has("totals") || !able.has("administration");
    if (!able.has("totals")) for (const node of [this.plots.latency.node, this.facts.wait.node]) node.hidden = true;
    if (able.has("administration")) return;
    for (const node of [this.plots.throughput.node, this.plots.depth.node, this.facts.oldest.node, this.queuesCard]) node.hidden = true;
  }

  open() {
    this.stats(this.page.live.stats);
  }

  stats(stats) {
    const { able, live, series, queues, workers } = this.page;
    this.#health(health({ able, live, stats, queues, workers, series }), stats);
    if (!able.has("administration")) this.#counting();
    if (stats === null || queues === null) return;
    this.#numbers(stats, queues);
    this.#draw(series);
    this.queues.show(queues);
    this.failures.show(this.groups, stats.now_ms);
    this.#failing(stats);
  }

  #health(verdict, stats) {
    set(this.health, "data-level", verdict.level);
    say(this.word, verdict.word);
    say(this.since, stats ? `server running for ${span(stats.now_ms - stats.started_at_ms)}` : "");
    const texts = verdict.findings.map((finding) => finding.text).join("\n");
    if (texts === this.findingsShown) return;
    this.findingsShown = texts;
    replace(this.findings, verdict.findings.slice(0, 6).map((finding) =>
      h("li", { "data-level": finding.level }, h("a", { href: finding.href }, cut(finding.text, 300)))));
  }

  #numbers(stats, queues) {
    const { series } = this.page;
    const sum = (name) => queues.reduce((total, queue) => total + queue[name], 0);
    const oldest = queues.reduce((best, queue) => (queue.ready && queue.oldest_age_ms > (best?.oldest_age_ms ?? -1) ? queue : best), null);
    const failed = series.grown("failed", 60_000);
    const since = series.since(60_000);
    const show = (key, value, note = "") => this.facts[key].show(value, note);
    show("ready", brief(sum("ready")), sum("delayed") ? `${brief(sum("delayed"))} delayed` : "");
    show("oldest", oldest ? span(oldest.oldest_age_ms) : "–", oldest ? `in ${oldest.name}` : "no job waits");
    show("running", `${brief(stats.leases)}`, `${plural(stats.slots, "slot")}, ${plural(stats.workers, "worker")}`);
    show("done", rate(series.rate("done")), "per second");
    show("failed", brief(failed), since === null ? "in the last minute" : `since ${moment(since, stats.now_ms)}`);
    show("wait", span(series.quantile("wait", 0.95)), "95th percentile");
    this.facts.failed.tone(failed ? "bad" : "");
    this.facts.oldest.tone(oldest && oldest.oldest_age_ms > 60_000 ? "warn" : "");
  }

  #draw(series) {
    const each = (values) => series.samples.map((sample, index) => ({ at: sample.at, values: values(sample, index) }));
    this.plots.throughput.show(each((_, i) => [series.rate("submitted", i), series.rate("done", i), series.rate("failed", i)]));
    this.plots.latency.show(each((_, i) => [series.quantile("wait", 0.95, i), series.quantile("run", 0.95, i)]));
    this.plots.depth.show(each((sample) => [sample.queued, sample.running]));
  }

  /** Without statistics: counts the jobs that a search returns. */
  async #counting() {
    if (Date.now() - this.failedAt < FAILED_AGAIN_MS) return;
    this.failedAt = Date.now();
    const ask = (status) => get("/jobs", { status, limit: FAILED_LOOKED_AT });
    try {
      const [ready, running, done, failed] = await Promise.all(["QUEUED", "RUNNING", "DONE", "FAILED"].map(ask));
      const show = (key, found) => this.facts[key].show(`${count(found.jobs.length)}${found.next_cursor ? "+" : ""}`, "found by a search");
      show("ready", ready);
      show("running", running);
      show("done", done);
      show("failed", failed);
      this.facts.failed.tone(failed.jobs.length ? "bad" : "");
      this.#group(failed.jobs, failed.jobs.length, Boolean(failed.next_cursor));
    } catch {
      // the next update tries again
    }
  }

  async #failing(stats) {
    const failed = stats.states.FAILED ?? 0;
    if (failed === this.failedSeen || Date.now() - this.failedAt < FAILED_AGAIN_MS) return;
    this.failedAt = Date.now();
    this.failedSeen = failed;
    try {
      this.#group((await get("/jobs", { status: "FAILED", limit: FAILED_LOOKED_AT })).jobs, failed);
    } catch {
      this.failedSeen = -1;
    }
  }

  #group(found, failed, isMore = failed > found.length) {
    this.groups = grouped(found).slice(0, GROUPS_SHOWN);
    this.failures.show(this.groups, this.page.now);
    const all = failed > found.length ? ` of ${count(failed)}` : "";
    const part = isMore ? `the newest ${count(found.length)}${all}` : count(failed);
    say(this.failuresNote, failed ? `From ${part} failed job${failed === 1 ? "" : "s"} that ${failed === 1 ? "is" : "are"} kept.` : "There are no failed jobs.");
  }
}

const FACTS = [
  ["ready", "Waiting", "#/jobs?status=QUEUED"],
  ["oldest", "Oldest job", "#/jobs?status=QUEUED&oldest_first=true"],
  ["running", "Running", "#/jobs?status=RUNNING"],
  ["done", "Done", "#/jobs?status=DONE"],
  ["failed", "Failed", "#/jobs?status=FAILED"],
  ["wait", "Time to start", "#/queues"],
];

function fact(label, href) {
  const value = h("span", { class: "number" }, "–");
  const note = h("span", { class: "note" });
  const node = h("div", { class: "fact" }, h("dt", {}, h("a", { href }, label)), h("dd", {}, value, note));
  return {
    node,
    show(text, words) {
      say(value, text);
      say(note, words);
    },
    tone(name) {
      set(node, "data-tone", name || null);
    },
  };
}

function queueTable() {
  const { node, body } = table("Queues", ["Queue", ["Waiting", "num"], ["Delayed", "num"], ["Running", "num"], ["Oldest job", "num"]], { class: "tight" });
  const none = empty("Loading");
  node.hidden = true;
  const rows = new Keyed(body, (queue) => queue.name, (queue) => {
    const mode = h("span", { class: "badge" });
    const cells = ["Waiting", "Delayed", "Running", "Oldest job"].map((label) => cell(label, "num"));
    return {
      node: h("tr", {}, h("th", { scope: "row" }, h("a", { href: jobsPath({ queue: queue.name }) }, cut(queue.name, 60)), " ", mode), cells),
      update(now) {
        mode.hidden = now.mode === "OPEN";
        setBadge(mode, now.mode);
        const texts = [brief(now.ready), brief(now.delayed), brief(now.running), now.ready ? span(now.oldest_age_ms) : "–"];
        cells.forEach((one, place) => say(one, texts[place]));
      },
    };
  });
  return {
    node,
    none,
    show(queues) {
      node.hidden = queues.length === 0;
      none.hidden = queues.length > 0;
      say(none, "No queue has jobs.");
      rows.show([...queues].sort((one, two) => two.ready - one.ready).slice(0, 12));
    },
  };
}

function failureTable() {
  const { node, body } = table("Reasons", [["Jobs", "num"], "Type", "Reason", ["Last failure", "num"]], { class: "tight" });
  const rows = new Keyed(body, (group) => group.key, (group) => {
    const number = cell("Jobs", "num");
    const reason = h("span", { class: "reason" });
    const latest = cell("Last failure", "num");
    const link = h("td", { "data-label": "Reason", class: "wide" });
    return {
      node: h("tr", {}, number, cell("Type", "", h("a", { href: jobsPath({ status: "FAILED", type: group.type }) }, cut(group.type, 60))), link, latest),
      update(now) {
        say(number, count(now.count));
        const text = cut(now.newest.failure_reason || "no reason given", 160);
        if (reason.textContent !== text) {
          say(reason, text);
          const to = jobLink(now.newest.id, text);
          set(to, "class", "reason");
          replace(link, to);
        }
        setAgo(latest, now.newest.finished_at_ms, now.at);
      },
    };
  });
  return {
    node,
    show(groups, at) {
      node.hidden = groups.length === 0;
      rows.show(groups.map((group) => ({ ...group, at })));
    },
  };
}

