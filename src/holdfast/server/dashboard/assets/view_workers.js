// Workers and the jobs that they run, with an action to drain a worker.

import { get, post } from "./api.js";
import { confirm, toast } from "./dialog.js";
import { cut, h, Keyed, replace, say, set } from "./dom.js";
import { count, span } from "./format.js";
import { button, cell, empty, heading, jobLink, setBadge, table } from "./parts.js";

const LEASES_ASKED = 200;
const LEASES_SHOWN = 8;
const AGAIN_MS = 2_000;

export class WorkersView {
  constructor(page) {
    this.page = page;
    this.title = "Workers";
    this.leases = new Map();
    this.askedAt = 0;
    const { node, body } = table("Workers", ["Worker", "State", ["Busy slots", "num"], ["Heartbeat", "num"], "Queues", "Types", "Running jobs", ""], { class: "stack" });
    this.table = node;
    this.none = empty("No worker is connected. Start one with `holdfast worker -A module:app`.");
    this.rows = new Keyed(body, (worker) => worker.worker_id, (worker) => this.#row(worker));
    this.node = h("div", {}, heading("Workers"), h("section", { class: "card flush", "aria-label": "All workers" }, node, this.none));
  }

  open() {
    this.stats();
  }

  stats() {
    const { workers } = this.page;
    this.table.hidden = !workers?.length;
    this.none.hidden = workers === null || workers.length > 0;
    if (workers === null) return;
    this.rows.show(workers);
    if (Date.now() - this.askedAt > AGAIN_MS) this.#held();
  }

  /** Loads the running jobs and groups them by worker. */
  async #held() {
    this.askedAt = Date.now();
    try {
      const { jobs } = await get("/jobs", { status: "RUNNING", limit: LEASES_ASKED });
      const leases = new Map();
      for (const job of jobs) leases.set(job.worker_id, [...(leases.get(job.worker_id) ?? []), job]);
      this.leases = leases;
      this.rows.show(this.page.workers ?? []);
    } catch {
      // the next update tries again
    }
  }

  #row(worker) {
    const state = h("span", { class: "badge" });
    const [busy, heard] = [cell("Busy slots", "num"), cell("Heartbeat", "num")];
    const [queues, types, held] = [cell("Queues"), cell("Types", "wide"), cell("Running jobs", "wide")];
    const drain = button("Drain", () => this.#drain(worker.worker_id), { "aria-label": `drain ${worker.worker_id}`, "data-scope": "admin" });
    let before = "";
    return {
      node: h("tr", {}, h("th", { scope: "row" }, cut(worker.worker_id, 80)), cell("State", "", state), busy, heard, queues, types, held, cell("", "acts", drain)),
      update: (now) => {
        setBadge(state, now.is_draining ? "DRAINING" : now.is_streaming ? "CONNECTED" : "POLLING");
        say(busy, `${count(now.running)} / ${count(now.slots)}`);
        say(heard, `${span(now.heard_ms_ago)} ago`);
        say(queues, cut(now.queues.join(", ") || "all", 200));
        say(types, cut(now.types.join(", "), 200));
        drain.disabled = now.is_draining || !now.is_streaming;
        const jobs = this.leases.get(now.worker_id) ?? [];
        const words = jobs.map((job) => job.id).join(" ");
        if (words === before) return;
        before = words;
        const more = now.running > LEASES_SHOWN ? h("li", {}, `and ${count(now.running - LEASES_SHOWN)} more`) : null;
        const lines = jobs.slice(0, LEASES_SHOWN).map((job) => h("li", {}, jobLink(job.id, job.id.slice(0, 13)), " ", cut(job.type, 40)));
        replace(held, lines.length ? h("ul", { class: "held" }, lines, more) : "–");
        set(held, "title", null);
      },
    };
  }

  async #drain(id) {
    const text = "The worker takes no more jobs, finishes its running jobs, and stops.";
    const answer = await confirm({ title: `Drain ${id}?`, text, act: "Drain worker" });
    if (answer === null) return;
    try {
      await post(`/workers/${encodeURIComponent(id)}/drain`);
      toast(`${id} was asked to drain.`);
    } catch (error) {
      toast(error.message, true);
    }
    await this.page.look();
    this.stats();
  }
}
