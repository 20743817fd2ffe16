// Schedules: their next and last runs, with actions to trigger, pause and resume them.

import { get, post } from "./api.js";
import { confirm, toast } from "./dialog.js";
import { cut, h, Keyed, replace, say } from "./dom.js";
import { count, full, span } from "./format.js";
import { button, cell, empty, heading, jobLink, setAgo, setBadge, table } from "./parts.js";

const AGAIN_MS = 3_000;
const NEXT_SHOWN = 5;

export class SchedulesView {
  constructor(page) {
    this.page = page;
    this.title = "Schedules";
    this.schedules = null;
    this.askedAt = 0;
    const { node, body } = table("Schedules", ["Schedule", "State", "Rule", "Job", ["Next run", "num"], ["Last run", "num"], ["Fired", "num"], ["Not fired", "num"], ""], { class: "stack" });
    this.table = node;
    this.table.hidden = true;
    this.none = empty("Loading");
    this.rows = new Keyed(body, (one) => one.name, (one) => this.#row(one));
    this.node = h("div", {}, heading("Schedules"), h("section", { class: "card flush", "aria-label": "All schedules" }, node, this.none));
  }

  open() {
    this.#load();
  }

  stats() {
    if (Date.now() - this.askedAt > AGAIN_MS) this.#load();
    else if (this.schedules !== null) this.rows.show(this.schedules);
  }

  async #load() {
    this.askedAt = Date.now();
    try {
      this.schedules = (await get("/schedules")).schedules;
      say(this.none, "There are no schedules. Create one with `holdfast schedule create`.");
    } catch (error) {
      this.schedules = error.isMissing ? [] : this.schedules;
      say(this.none, error.isMissing ? "This backend has no schedules." : error.message);
    }
    this.table.hidden = !this.schedules?.length;
    this.none.hidden = !this.table.hidden;
    if (this.schedules !== null) this.rows.show(this.schedules);
  }

  #row(schedule) {
    const state = h("span", { class: "badge" });
    const when = cell("Rule");
    const makes = cell("Job");
    const [next, last, made, passed] = ["Next run", "Last run", "Fired", "Not fired"].map((name) => cell(name, "num"));
    const nextAt = h("button", { type: "button", class: "quiet", "aria-expanded": "false", "aria-label": `next runs of ${schedule.name}` });
    const ahead = h("ul", { class: "held" });
    ahead.hidden = true;
    nextAt.addEventListener("click", () => this.#ahead(schedule.name, nextAt, ahead));
    next.append(nextAt, ahead);
    const act = (verb, text) => button(text, () => this.#act(schedule.name, verb), { "aria-label": `${verb} ${schedule.name}`, "data-scope": "admin" });
    const [trigger, pause, resume] = [act("trigger", "Run now"), act("pause", "Pause"), act("resume", "Resume")];
    let lastJob = null;
    return {
      node: h("tr", {}, h("th", { scope: "row" }, cut(schedule.name, 80)), cell("State", "", state), when, makes, next, last, made, passed, cell("", "acts", trigger, pause, resume)),
      update: (now) => {
        setBadge(state, now.status);
        say(when, whenOf(now));
        say(makes, cut(`${now.type} in ${now.queue}`, 120));
        setAgo(nextAt, now.next_at_ms, this.page.now);
        if (lastJob !== now.last_job_id || !now.last_job_id) {
          lastJob = now.last_job_id;
          replace(last, lastJob ? jobLink(lastJob, "") : "–");
        }
        if (lastJob) setAgo(last.firstChild, now.last_tick_ms || now.created_at_ms, this.page.now);
        say(made, count(now.fired));
        say(passed, count(now.skipped + now.missed));
        pause.hidden = now.status !== "active";
        resume.hidden = now.status !== "paused";
      },
    };
  }

  async #ahead(name, opener, list) {
    const isOpen = opener.getAttribute("aria-expanded") === "true";
    opener.setAttribute("aria-expanded", String(!isOpen));
    list.hidden = isOpen;
    if (isOpen) return;
    try {
      const { ticks_ms: ticks } = await get(`/schedules/${encodeURIComponent(name)}/preview`, { count: NEXT_SHOWN });
      replace(list, ticks.length ? ticks.map((tick) => h("li", {}, full(tick))) : h("li", {}, "no further runs"));
    } catch (error) {
      replace(list, h("li", {}, error.message));
    }
  }

  async #act(name, verb) {
    const texts = {
      trigger: "The schedule creates a job now, in addition to its other runs.",
      pause: "The schedule creates no jobs until it is resumed; runs during the pause are skipped.",
      resume: "The schedule continues from now.",
    };
    const word = verb === "trigger" ? "Run" : verb[0].toUpperCase() + verb.slice(1);
    const answer = await confirm({ title: `${word} ${name}${verb === "trigger" ? " now" : ""}?`, text: texts[verb], act: `${word}${verb === "trigger" ? " now" : " schedule"}` });
    if (answer === null) return;
    try {
      const done = await post(`/schedules/${encodeURIComponent(name)}/${verb}`);
      toast(verb === "trigger" ? `${name} created the job ${done.id}.` : `${name} is ${verb === "pause" ? "paused" : "active"}.`);
    } catch (error) {
      toast(error.message, true);
    }
    await this.#load();
  }
}

function whenOf(schedule) {
  const zone = schedule.timezone && schedule.timezone !== "UTC" ? ` ${schedule.timezone}` : "";
  if (schedule.cron) return cut(`${schedule.cron}${zone}`, 120);
  if (schedule.every_s) return `every ${span(schedule.every_s * 1_000)}`;
  return full(schedule.at_ms);
}
