// Requests to the public HTTP API.

const BASE = "/api/v1";
const WARNING = "warning: ";
// Statuses of temporary errors.
const BUSY = new Set([429, 503]);

/** An error response: `reason` for programs, `detail` for people. */
export class Problem extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answered ${status}`);
    this.status = status;
    this.reason = problem.reason || "";
  }

  /** Whether the backend lacks this capability. */
  get isMissing() {
    return this.status === 501;
  }
}

/** Sends a GET request; omits empty filters, repeats those with several values. */
export async function get(path, query = {}, options = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== "" && one !== null) words.append(name, one);
  }
  const text = words.toString();
  return call("GET", text ? `${path}?${text}` : path, undefined, options);
}

/** Sends a POST request; an idempotency key makes it safe to repeat. */
export async function post(path, body, options = {}) {
  return call("POST", path, body, options);
}

/** Ends the session of this browser. */
export async function leave() {
  return call("DELETE", "/session");
}

/** The warnings in the readiness page of a server, for one without statistics. */
export async function warnings({ signal } = {}) {
  const answer = await fetch("/readyz", { signal, credentials: "same-origin", cache: "no-store", redirect: "error" });
  const lines = (await answer.text()).split("\n");
  return answer.ok ? lines.filter((line) => line.startsWith(WARNING)).map((line) => line.slice(WARNING.length)) : [];
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

/** Parses JSON; in the field `exact`, numbers keep their text if the browser supports that. */
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
      reject(new DOMException("aborted", "AbortError"));
    });
  });
}

/** Calls `act` for each item, four at a time, and returns all outcomes. */
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
