// Queues, with actions to pause, resume, drain and purge them.

import { post } from "./api.js";
import { confirm, toast } from "./dialog.js";
import { cut, h, Keyed, say } from "./dom.js";
import { count, plural, span } from "./format.js";
import { button, cell, empty, heading, jobsPath, setBadge, table } from "./parts.js";

const VERBS = {
  pause: { text: "Workers get no more jobs of this queue; it still accepts new jobs.", past: "is paused" },
  resume: { text: "The queue accepts jobs, and workers get them.", past: "is open" },
  drain: { text: "The queue accepts no new jobs; workers still run the waiting ones.", past: "is draining" },
  purge: { text: "All waiting jobs of the queue are canceled. This cannot be undone.", past: "was purged", isDanger: true },
};

export class QueuesView {
  constructor(page) {
    this.page = page;
    this.title = "Queues";
    const { node, body } = table("Queues", ["Queue", "Mode", ["Waiting", "num"], ["Delayed", "num"], ["Running", "num"], ["Oldest job", "num"], "Reason", ""], { class: "stack" });
    this.table = node;
    this.none = empty("No queue has jobs, and all queues are open. The first job creates its queue.");
    this.rows = new Keyed(body, (queue) => queue.name, (queue) => this.#row(queue));
    this.node = h("div", {}, heading("Queues"), h("section", { class: "card flush", "aria-label": "All queues" }, node, this.none));
  }

  open() {
    this.stats();
  }

  stats() {
    const { queues } = this.page;
    this.table.hidden = !queues?.length;
    this.none.hidden = queues === null || queues.length > 0;
    if (queues !== null) this.rows.show(queues);
  }

  #row(queue) {
    const mode = h("span", { class: "badge" });
    const names = ["Waiting", "Delayed", "Running", "Oldest job"];
    const cells = names.map((name) => cell(name, "num"));
    const reason = cell("Reason", "wide");
    const verbs = Object.fromEntries(Object.keys(VERBS).map((verb) => [verb,
      button(verb[0].toUpperCase() + verb.slice(1), () => this.#act(queue.name, verb), { class: verb === "purge" ? "danger" : null, "aria-label": `${verb} ${queue.name}`, "data-scope": "admin" })]));
    return {
      node: h("tr", {}, h("th", { scope: "row" }, h("a", { href: jobsPath({ queue: queue.name }) }, cut(queue.name, 80))), cell("Mode", "", mode), cells, reason,
        cell("", "acts", Object.values(verbs))),
      update(now) {
        this.now = now;
        setBadge(mode, now.mode);
        const texts = [count(now.ready), count(now.delayed), count(now.running), now.ready ? span(now.oldest_age_ms) : "–"];
        cells.forEach((one, place) => say(one, texts[place]));
        say(reason, cut(now.reason, 200));
        verbs.pause.hidden = now.mode === "PAUSED";
        verbs.resume.hidden = now.mode === "OPEN";
        verbs.drain.hidden = now.mode === "DRAINING";
        verbs.purge.disabled = now.ready + now.delayed === 0;
      },
    };
  }

  async #act(name, verb) {
    const { text, past, isDanger } = VERBS[verb];
    const title = `${verb[0].toUpperCase()}${verb.slice(1)} ${name}?`;
    const answer = await confirm({ title, text, act: title.slice(0, -1), isDanger, asksReason: true });
    if (answer === null) return;
    try {
      const done = await post(`/queues/${encodeURIComponent(name)}/${verb}`, answer);
      toast(verb === "purge" ? `${plural(done.canceled, "job")} of ${name} canceled.` : `${name} ${past}.`);
    } catch (error) {
      toast(error.message, true);
    }
    await this.page.look();
    this.stats();
  }
}
