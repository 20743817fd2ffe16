// The login for servers that require a token. The server keeps it in a cookie that scripts cannot read.

import { post } from "./api.js";
import { h, say } from "./dom.js";
import { heading } from "./parts.js";

export class LoginView {
  constructor(done) {
    this.title = "Log in";
    const token = h("input", {
      id: "token", name: "token", type: "password", required: true, autocomplete: "current-password", spellcheck: "false",
    });
    const trouble = h("p", { class: "trouble", role: "alert" });
    const form = h(
      "form",
      { class: "card login" },
      h("p", { class: "field" }, h("label", { for: "token" }, "Token"), token),
      h("p", { class: "hint" }, "Create one with ", h("code", {}, "holdfast token create"), "; its scopes define what you may do here."),
      trouble,
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Log in")),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        await post("/session", { token: token.value });
        done();
      } catch (error) {
        say(trouble, error.message);
        token.select();
      }
    });
    this.token = token;
    this.node = h("div", {}, heading("Log in"), form);
  }

  open() {
    this.token.focus();
  }
}
