// Line plots of the last minutes: a few series, one scale, and the values at the pointer.

import { h, replace, s, say } from "./dom.js";
import { moment, span } from "./format.js";

const HEIGHT = 132;
const LEFT = 44;
const RIGHT = 6;
const TOP = 8;
const BOTTOM = 18;
const WINDOW_MS = 300_000;
const WINDOW_LEAST_MS = 60_000;

/** One plot with its title, its latest values and its drawing. */
export class Plot {
  constructor(title, lines, format, least) {
    this.lines = lines;
    this.format = format;
    this.least = least; // the minimum of the scale, so that noise stays small
    this.points = [];
    this.at = null;
    this.values = lines.map((line) => h("span", { class: "value" }, "–"));
    const legend = lines.map((line, place) =>
      h("span", { class: `key ${line.tone}` }, h("i", { "aria-hidden": "true" }), line.name, " ", this.values[place]),
    );
    this.when = h("span", { class: "when" });
    this.drawing = s("svg", { class: "plot", role: "img", height: HEIGHT, "aria-label": title });
    this.node = h(
      "section",
      { class: "card plot-card", "aria-label": title },
      h("div", { class: "plot-head" }, h("h2", {}, title), this.when, h("div", { class: "legend" }, legend)),
      this.drawing,
    );
    this.drawing.addEventListener("pointermove", (event) => this.#look(event.offsetX));
    this.drawing.addEventListener("pointerleave", () => this.#look(null));
    new ResizeObserver(() => this.draw()).observe(this.drawing);
  }

  /** Points are `{at, values}`, oldest first; a value of null is a gap. */
  show(points) {
    this.points = points;
    this.draw();
  }

  draw() {
    const width = this.drawing.clientWidth;
    if (!width) return;
    const end = this.points.at(-1)?.at ?? Date.now();
    const length = Math.min(WINDOW_MS, Math.max(WINDOW_LEAST_MS, end - (this.points[0]?.at ?? end)));
    const begin = end - length;
    const seen = this.points.filter((point) => point.at >= begin);
    const top = nice(Math.max(this.least, ...seen.flatMap((point) => point.values.map((value) => value ?? 0))));
    const x = (at) => LEFT + ((at - begin) / length) * (width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    this.scale = { begin, width, length };
    replace(
      this.drawing,
      [0, top / 2, top].map((value) => this.#grid(value, y(value), width)),
      ticks(length, width).map((ago) => tick(x(end - ago), ago, width)),
      this.lines.map((line, place) => drawn(line, place, seen, x, y)),
      this.at === null ? null : this.#cursor(seen, x, y),
    );
    this.#tell(seen);
  }

  #grid(value, y, width) {
    return [
      s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }),
      s("text", { class: "axis", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, this.format(value)),
    ];
  }

  #look(offset) {
    const { begin, width, length } = this.scale ?? {};
    this.at = offset === null || !width ? null : begin + ((offset - LEFT) / (width - LEFT - RIGHT)) * length;
    this.draw();
  }

  #nearest(seen) {
    let best = seen.at(-1);
    for (const point of seen) if (Math.abs(point.at - this.at) < Math.abs(best.at - this.at)) best = point;
    return best;
  }

  #cursor(seen, x, y) {
    const point = this.#nearest(seen);
    if (point === undefined) return null;
    const line = s("line", { class: "cursor", x1: x(point.at), x2: x(point.at), y1: TOP, y2: HEIGHT - BOTTOM });
    const dots = point.values.map((value, place) =>
      value === null ? null : s("circle", { class: `dot ${this.lines[place].tone}`, cx: x(point.at), cy: y(value), r: 3 }),
    );
    return [line, ...dots.filter(Boolean)];
  }

  #tell(seen) {
    const point = this.at === null ? seen.at(-1) : this.#nearest(seen);
    say(this.when, this.at === null || point === undefined ? "" : moment(point.at));
    for (const [place, node] of this.values.entries()) {
      const value = point?.values[place] ?? null;
      say(node, value === null ? "–" : this.format(value));
    }
  }
}

/** The ages that label the time axis; fewer on narrow screens. */
function ticks(length, width) {
  const step = [15_000, 30_000, 60_000, 120_000].find((one) => length / one < (width < 360 ? 3 : 5.5));
  const all = [];
  for (let ago = 0; ago < length * 0.9; ago += step) all.push(ago);
  return all;
}

function tick(x, ago, width) {
  const anchor = x > width - 24 ? "end" : "middle";
  return s("text", { class: "axis", x, y: HEIGHT - 4, "text-anchor": anchor }, ago ? `−${span(ago)}` : "now");
}

function drawn(line, place, seen, x, y) {
  let path = "";
  let area = "";
  let first = null;
  let last = null;
  const close = () => {
    if (first !== null) area += `L${x(last).toFixed(1)} ${y(0)}L${x(first).toFixed(1)} ${y(0)}Z`;
    first = null;
  };
  for (const point of seen) {
    const value = point.values[place];
    if (value === null) {
      close();
      continue;
    }
    const here = `${x(point.at).toFixed(1)} ${y(value).toFixed(1)}`;
    path += (first === null ? "M" : "L") + here;
    area += (first === null ? "M" : "L") + here;
    first ??= point.at;
    last = point.at;
  }
  close();
  return [
    line.isFilled ? s("path", { class: `area ${line.tone}`, d: area }) : null,
    s("path", { class: `line ${line.tone}`, d: path }),
  ].filter(Boolean);
}

/** Rounds up to a number that is easy to halve. */
export function nice(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((step) => step * size >= value) * size;
}
