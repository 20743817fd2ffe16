// The view of a capability that the backend lacks: explains it, and links to the jobs.

import { h } from "./dom.js";
import { empty, heading } from "./parts.js";

export class MissingView {
  constructor(page, title, need) {
    this.title = title;
    this.node = h("div", {}, heading(title), h("section", { class: "card", "aria-label": "Not available" },
      empty(page.able.lack(need)), h("p", {}, h("a", { href: "#/jobs" }, "Show the jobs"))));
  }
}
