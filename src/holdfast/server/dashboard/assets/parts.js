// Small elements that several views share.

import { cut, h, set, say } from "./dom.js";
import { ago, full } from "./format.js";

/** The state of a job as a coloured word. */
export function badge(status) {
  const node = h("span", { class: "badge" });
  setBadge(node, status);
  return node;
}

export function setBadge(node, status, text = status.toLowerCase()) {
  set(node, "data-status", status.toLowerCase());
  say(node, text);
}

/** Shows how long ago a time was, with the exact time as tooltip. */
export function setAgo(node, ms, now) {
  say(node, ms ? ago(ms, now) : "–");
  set(node, "title", ms ? full(ms) : null);
}

/** A link to a job. */
export function jobLink(id, text = id) {
  return h("a", { class: "mono", href: `#/jobs/${encodeURIComponent(id)}` }, cut(text, 80));
}

/** A link to the jobs that match the filters. */
export function jobsLink(text, filters) {
  return h("a", { href: jobsPath(filters) }, text);
}

export function jobsPath(filters) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one) words.append(name, one);
  }
  const text = words.toString();
  return text ? `#/jobs?${text}` : "#/jobs";
}

/** A button. */
export function button(text, act, props = {}) {
  return h("button", { type: "button", ...props, on: { click: act } }, text);
}

/** A table with a heading; the caller fills the body. */
export function table(label, columns, props = {}) {
  const heads = columns.map((column) => {
    const [text, kind] = Array.isArray(column) ? column : [column, ""];
    return h("th", { scope: "col", class: kind || null }, text);
  });
  const body = h("tbody");
  const node = h("table", { "aria-label": label, ...props }, h("thead", {}, h("tr", {}, heads)), body);
  return { node: h("div", { class: "scroll" }, node), body, heads };
}

/** A cell that keeps its column's name for narrow screens. */
export function cell(label, kind, ...children) {
  return h("td", { "data-label": label, class: kind || null }, ...children);
}

/** The heading of a view; it takes the focus when the view opens. */
export function heading(text, ...more) {
  return h("div", { class: "heading" }, h("h1", { tabindex: -1 }, text), ...more);
}

/** A note that there is no data, or why it cannot be shown. */
export function empty(text, kind = "empty") {
  return h("p", { class: kind }, text);
}
