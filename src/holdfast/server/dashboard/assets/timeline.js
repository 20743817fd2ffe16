// The timeline of a job: a row for its waiting times and a row per attempt, from its submit to its end or now.

import { cut, replace, s } from "./dom.js";
import { moment, span } from "./format.js";

const ROW = 24;
const BAR = 12;
const ATTEMPTS_SHOWN = 12;

/** Computes the waits and attempts from the history of the job, oldest first. */
export function spans(entries, now) {
  const waits = [];
  const attempts = [];
  let waitsSince = null;
  let attempt = null;
  for (const entry of entries) {
    if (entry.what === "submitted") waitsSince = entry.at_ms;
    if (entry.status === "RUNNING" && entry.what === "granted") {
      if (waitsSince !== null) waits.push({ from: waitsSince, to: entry.at_ms });
      waitsSince = null;
      attempt = { from: entry.at_ms, to: null, worker: entry.worker_id, token: entry.token, end: "RUNNING", reason: "" };
      attempts.push(attempt);
    } else if (entry.status && entry.status !== "RUNNING" && entry.what !== "submitted") {
      if (attempt !== null) {
        Object.assign(attempt, { to: entry.at_ms, end: entry.what === "lease lost" ? "LOST" : entry.status, reason: entry.reason });
        attempt = null;
        waitsSince = entry.status === "QUEUED" ? entry.at_ms : null;
      } else if (waitsSince !== null && entry.status !== "QUEUED") {
        waits.push({ from: waitsSince, to: entry.at_ms });
        waitsSince = null;
      }
    }
  }
  if (waitsSince !== null) waits.push({ from: waitsSince, to: null });
  const begin = entries[0]?.at_ms ?? now;
  const isOpen = waitsSince !== null || attempt !== null;
  return { waits, attempts, begin, end: Math.max(begin + 1, isOpen ? now : entries.filter((one) => one.status).at(-1)?.at_ms ?? now), isOpen };
}

/** The drawing, in the width of its element. */
export class Timeline {
  constructor() {
    this.node = s("svg", { class: "timeline", role: "img", height: ROW, "aria-label": "Timeline of the job" });
    this.entries = [];
    this.now = 0;
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  show(entries, now) {
    this.entries = entries;
    this.now = now;
    this.draw();
  }

  draw() {
    const width = this.node.clientWidth;
    if (!width || !this.entries.length) return;
    const { waits, attempts, begin, end, isOpen } = spans(this.entries, this.now);
    const left = width < 480 ? 84 : 190;
    const seen = attempts.slice(-ATTEMPTS_SHOWN);
    const height = ROW * (1 + seen.length) + 22;
    const x = (at) => left + ((at - begin) / (end - begin)) * (width - left - 8);
    const bar = (row, from, to, kind, words) =>
      s("rect", { class: `span ${kind}`, x: x(from), y: row * ROW + (ROW - BAR) / 2, height: BAR, rx: 3, width: Math.max(2, x(to ?? end) - x(from)) },
        s("title", {}, words));
    const name = (row, text) => s("text", { class: "row-name", x: 0, y: row * ROW + ROW / 2 + 4 }, cut(text, width < 480 ? 12 : 28));
    const marks = this.entries.filter((entry) => entry.what === "cancel requested" || entry.what === "report refused");
    this.node.setAttribute("height", height);
    replace(this.node,
      [0, 0.5, 1].map((share) => s("line", { class: "grid", x1: x(begin + share * (end - begin)), x2: x(begin + share * (end - begin)), y1: 0, y2: height - 18 })),
      name(0, "waiting"),
      waits.map((one) => bar(0, one.from, one.to, "waiting", `waited for ${span((one.to ?? end) - one.from)}`)),
      seen.map((one, place) => [
        name(place + 1, `${attempts.length - seen.length + place + 1}. ${one.worker}`),
        bar(place + 1, one.from, one.to, one.end.toLowerCase(), cut(`${one.end.toLowerCase()} after ${span((one.to ?? end) - one.from)} on ${one.worker} ${one.reason}`, 300)),
      ]).flat(),
      marks.map((mark) => s("line", { class: "mark", x1: x(mark.at_ms), x2: x(mark.at_ms), y1: 0, y2: height - 18 }, s("title", {}, cut(mark.what, 80)))),
      s("text", { class: "axis", x: left, y: height - 4 }, moment(begin, this.now)),
      s("text", { class: "axis", x: width - 8, y: height - 4, "text-anchor": "end" }, isOpen ? `+${span(end - begin)}, now` : `+${span(end - begin)}`));
  }
}
