// Formats numbers and times.

const WHOLE = new Intl.NumberFormat("en");
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit" });
const FULL = new Intl.DateTimeFormat("en-GB", {
  year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  fractionalSecondDigits: 3, timeZoneName: "short",
});
const DAY_MS = 86_400_000;

/** A number with thousands separators. */
export function count(value) {
  return WHOLE.format(value);
}

/** The short form of a number. */
export function brief(value) {
  if (value < 10_000) return count(Math.round(value));
  if (value < 1_000_000) return `${trim(value / 1_000)} k`;
  return `${trim(value / 1_000_000)} M`;
}

function trim(value) {
  return value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : value.toFixed(0);
}

/** A rate per second. */
export function rate(value) {
  if (value === null) return "–";
  if (value === 0) return "0";
  return value < 10 ? value.toFixed(1) : brief(value);
}

/** A duration in its largest units. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return ms > 0 ? "<1 ms" : "0 ms";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const s = ms / 1_000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3_600) return `${Math.floor(s / 60)} min${part(Math.floor(s % 60), "s")}`;
  if (s < 86_400) return `${Math.floor(s / 3_600)} h${part(Math.floor((s % 3_600) / 60), "min")}`;
  return `${Math.floor(s / 86_400)} d${part(Math.floor((s % 86_400) / 3_600), "h")}`;
}

function part(value, unit) {
  return value ? ` ${value} ${unit}` : "";
}

/** A time relative to now. */
export function ago(ms, now) {
  const past = now - ms;
  if (Math.abs(past) < 1_000) return "now";
  return past > 0 ? `${span(past)} ago` : `in ${span(-past)}`;
}

/** The short form of a time. */
export function moment(ms, now = Date.now()) {
  if (!ms) return "–";
  return Math.abs(now - ms) < DAY_MS / 2 ? CLOCK.format(ms) : DAY.format(ms);
}

/** A time in full. */
export function full(ms) {
  return ms ? FULL.format(ms) : "–";
}

/** A number of bytes. */
export function bytes(value) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (value >= size) return `${trim(value / size)} ${unit}`;
  }
  return `${value} B`;
}

/** A number with its noun, in singular or plural. */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
