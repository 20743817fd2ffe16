// What the backend behind this page can do; what it cannot is neither asked for nor offered.

import { get } from "./api.js";

/** Everything, until the server says otherwise. */
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
      // each part of the page finds out by itself
    }
    for (const link of document.querySelectorAll("nav a[data-needs]")) link.hidden = !this.has(link.dataset.needs);
  }

  has(name) {
    return !(name in this.missing);
  }

  /** That something is not there, as a sentence. */
  lack(name) {
    const text = this.missing[name] ?? "";
    return text && `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
  }
}
