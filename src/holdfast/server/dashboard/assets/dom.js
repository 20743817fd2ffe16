// Creates elements. Data of jobs is always text: nothing in these modules turns a string into markup.

const SVG = "http://www.w3.org/2000/svg";
// Characters that are invisible or reorder the text around them.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Returns the text with invisible and reordering characters escaped. */
export function shown(value) {
  return String(value).replace(UNSEEN, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
}

/** Returns at most `max` characters of the text. */
export function cut(value, max) {
  const text = String(value);
  return shown(text.length > max ? `${text.slice(0, max - 1)}…` : text);
}

/** Creates an element with attributes and children; `on` has its listeners. Strings become text. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Creates an SVG element. */
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

/** Sets an attribute; links may only lead to this page or this server. */
export function set(node, name, value) {
  if (name.startsWith("on") || name === "style") throw new TypeError(`no attribute for text: ${name}`);
  if (name === "href" && !/^(#|\/(?!\/))/.test(value)) throw new TypeError("a link leads outside");
  if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else if (name === "value" && "value" in node) node.value = value;
  else node.setAttribute(name, value === true ? "" : value);
}

/** Sets the text only if it differs, so that a selection in it is kept. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Replaces all children of a node. */
export function replace(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

/** Children by key; a child is kept while its key is present, with its focus and selection. */
export class Keyed {
  constructor(parent, keyOf, make) {
    this.parent = parent;
    this.keyOf = keyOf;
    this.make = make;
    this.parts = new Map();
  }

  /** `make(item)` returns `{node, update(item)}`; nodes are moved only if the order changed. */
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
