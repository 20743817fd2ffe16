// Elements. Whatever a job carries is text here: nothing in these modules can turn a string into markup.

const SVG = "http://www.w3.org/2000/svg";
// Characters that change how the text around them is read, or that cannot be seen.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Text as it can be shown: what would hide or reorder other text is spelt out. */
export function shown(value) {
  return String(value).replace(UNSEEN, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
}

/** The beginning of a text that may be long. */
export function cut(value, max) {
  const text = String(value);
  return shown(text.length > max ? `${text.slice(0, max - 1)}…` : text);
}

/** An element with attributes and children; `on` has its listeners. Strings become text. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same for drawings. */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else {
      set(node, name, value);
    }
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Sets an attribute; a link may only lead to a place of this page or of this server. */
export function set(node, name, value) {
  if (name.startsWith("on") || name === "style") throw new TypeError(`no attribute for text: ${name}`);
  if (name === "href" && !/^(#|\/(?!\/))/.test(value)) throw new TypeError("a link leads outside");
  if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else if (name === "value" && "value" in node) node.value = value;
  else node.setAttribute(name, value === true ? "" : value);
}

/** Changes the text only if it is another one, so that a selection in it stays. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Everything in a node is replaced. */
export function replace(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

/** Children that are kept while their key is there, so that focus and choices in them stay. */
export class Keyed {
  constructor(parent, keyOf, make) {
    this.parent = parent;
    this.keyOf = keyOf;
    this.make = make;
    this.parts = new Map();
  }

  /** `make(item)` gives `{node, update(item)}`; nodes are moved only where the order changed. */
  show(items) {
    const wanted = new Map(items.map((item) => [this.keyOf(item), item]));
    for (const [key, part] of this.parts) {
      if (!wanted.has(key)) {
        part.node.remove();
        this.parts.delete(key);
      }
    }
    let next = this.parent.firstElementChild;
    for (const [key, item] of wanted) {
      let part = this.parts.get(key);
      if (part === undefined) {
        part = this.make(item);
        this.parts.set(key, part);
      }
      part.update(item);
      if (part.node === next) next = next.nextElementSibling;
      else this.parent.insertBefore(part.node, next);
    }
  }
}
