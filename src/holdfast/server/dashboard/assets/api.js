// The public HTTP API, and nothing else.

const BASE = "/api/v1";
// Statuses that pass by themselves.
const BUSY = new Set([429, 503]);

/** What a server answers when it refuses: `reason` for programs, `detail` for people. */
export class Problem extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answered ${status}`);
    this.status = status;
    this.reason = problem.reason || "";
  }

  /** The backend cannot do this at all. */
  get isMissing() {
    return this.status === 501;
  }
}

/** Asks; a filter that is empty is left out, one with several values is said several times. */
export async function get(path, query = {}, options = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== "" && one !== null) words.append(name, one);
  }
  const text = words.toString();
  return call("GET", text ? `${path}?${text}` : path, undefined, options);
}

/** Changes something. A key makes it safe to say twice. */
export async function post(path, body, options = {}) {
  return call("POST", path, body, options);
}

/** Has the browser forget who it is. */
export async function leave() {
  return call("DELETE", "/session");
}

async function call(method, path, body, { signal, exact = "", key = "", tries = 3 } = {}) {
  const headers = { accept: "application/json", "x-holdfast-request": "1" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key) headers["idempotency-key"] = key;
  const init = { method, headers, signal, credentials: "same-origin", cache: "no-store", redirect: "error" };
  if (body !== undefined) init.body = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path.startsWith("/") && !path.startsWith(BASE) ? BASE + path : path, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "the server does not answer" });
  }
  if (BUSY.has(answer.status) && tries > 1) {
    await pause(Math.min(10, Number(answer.headers.get("retry-after")) || 1) * 1_000, signal);
    return call(method, path, body, { signal, exact, key, tries: tries - 1 });
  }
  const text = await answer.text();
  if (answer.ok) return text ? parse(text, exact) : null;
  if (answer.status === 401) document.dispatchEvent(new CustomEvent("holdfast:login"));
  throw new Problem(answer.status, problemOf(text));
}

function problemOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** JSON; in the field that is named, numbers stay as they were written, where the browser can do that. */
function parse(text, exact) {
  const value = JSON.parse(text);
  if (!exact || !JSON.rawJSON) return value;
  const written = JSON.parse(text, (_, part, context) =>
    typeof part === "number" && context?.source && String(part) !== context.source ? JSON.rawJSON(context.source) : part,
  );
  value[exact] = written[exact];
  return value;
}

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("given up", "AbortError"));
    });
  });
}

/** Does something for each, a few at a time, and says how each ended. */
export async function forEach(items, act, told = () => {}) {
  const left = [...items];
  const outcomes = [];
  const work = async () => {
    while (left.length) {
      const item = left.shift();
      try {
        outcomes.push({ item, value: await act(item) });
      } catch (error) {
        outcomes.push({ item, error });
      }
      told(outcomes.length);
    }
  };
  await Promise.all(Array.from({ length: 4 }, work));
  return outcomes;
}
