// The capabilities of the backend; the page neither requests nor offers missing ones.

import { get } from "./api.js";

/** Assumes all capabilities until the server reports them. */
export class Able {
  constructor() {
    this.backend = "";
    this.version = "";
    this.missing = {};
  }

  async ask() {
    try {
      Object.assign(this, await get("/capabilities"));
    } catch {
      // requests of missing capabilities fail one by one
    }
    for (const link of document.querySelectorAll("nav a[data-needs]")) link.hidden = !this.has(link.dataset.needs);
  }

  has(name) {
    return !(name in this.missing);
  }

  /** The sentence about a missing capability; empty if it is present. */
  lack(name) {
    const text = this.missing[name] ?? "";
    return text && `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
  }
}
