// Confirmation dialogs and messages.

import { h, shown } from "./dom.js";

/** Asks for confirmation; resolves to `{reason}`, or to null if it is dismissed. The dialog keeps the focus. */
export function confirm({ title, text, act, isDanger = false, asksReason = false }) {
  const before = document.activeElement;
  const reason = h("input", { id: "reason", name: "reason", maxlength: 1000, autocomplete: "off" });
  const go = h("button", { type: "submit", class: isDanger ? "danger" : "primary" }, act);
  const keep = h("button", { type: "button" }, "Go back");
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "ask" }, title),
    h("p", { id: "ask-text" }, shown(text)),
    asksReason ? h("p", { class: "field" }, h("label", { for: "reason" }, "Reason (stored in the history)"), reason) : null,
    h("div", { class: "buttons" }, keep, go),
  );
  const dialog = h("dialog", { "aria-labelledby": "ask", "aria-describedby": "ask-text" }, form);
  document.body.append(dialog);
  return new Promise((resolve) => {
    let answer = null;
    keep.addEventListener("click", () => dialog.close());
    form.addEventListener("submit", () => {
      answer = { reason: reason.value.trim() };
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      else document.querySelector("main h1")?.focus();
      resolve(answer);
    });
    dialog.showModal();
    (asksReason ? reason : isDanger ? keep : go).focus();
  });
}

/** Shows a message for six seconds; an error message stays until it is closed. */
export function toast(text, isTrouble = false) {
  const node = h("div", { class: isTrouble ? "toast bad" : "toast" }, h("span", {}, shown(text)));
  const close = h("button", { type: "button", class: "quiet", "aria-label": "Close" }, "×");
  close.addEventListener("click", () => node.remove());
  node.append(close);
  document.getElementById("toasts").append(node);
  if (!isTrouble) setTimeout(() => node.remove(), 6_000);
}
