// A view that the backend cannot fill: it says so, and where to go on.

import { h } from "./dom.js";
import { empty, heading } from "./parts.js";

export class MissingView {
  constructor(page, title, need) {
    this.title = title;
    this.node = h("div", {}, heading(title), h("section", { class: "card", "aria-label": "Not here" },
      empty(page.able.lack(need)), h("p", {}, h("a", { href: "#/jobs" }, "Jobs can be looked at all the same."))));
  }
}
