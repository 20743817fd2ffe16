// The event stream of the server: its statistics every second, and the history entries of the job that is shown.
// Without an event stream, the page polls the statistics if there are any, and tells the view to reload.

import { get, warnings } from "./api.js";

const AGAIN_MS = 2_000;
const SILENT_MS = 15_000;

/** Dispatches `stats`, `entries`, `open`, `look` and `state`; reconnects after a lost connection. */
export class Live extends EventTarget {
  constructor(able) {
    super();
    this.able = able;
    this.stats = null;
    this.state = "waiting";
    this.lostAt = 0;
    this.job = "";
    this.source = null;
    this.timer = 0;
    this.heardAt = 0;
    this.isHalted = false;
    this.trouble = ""; // the error message of a server that cannot send its statistics
    this.warnings = []; // of a server without statistics; those of other servers are in the statistics
    setInterval(() => this.#watch(), SILENT_MS / 3);
  }

  /** Subscribes to the entries of this job; to none if it is empty. */
  follow(job) {
    const isFollowed = this.job === job && (this.source !== null || !this.able.has("feed"));
    this.job = job;
    if (!isFollowed) this.start();
  }

  /** Stops all requests until the next start. */
  halt() {
    this.isHalted = true;
    this.stop();
  }

  start() {
    this.isHalted = false;
    this.stop();
    if (this.able.has("feed")) this.#listen();
    else this.#poll();
  }

  #listen() {
    const words = new URLSearchParams([["kind", "stats"]]);
    if (this.job) {
      words.append("kind", "entries");
      words.append("job", this.job);
    }
    const source = new EventSource(`/api/v1/events?${words}`);
    this.source = source;
    source.addEventListener("open", () => {
      this.heardAt = Date.now();
      this.#tell("open");
    });
    source.addEventListener("stats", (event) => this.#stats(JSON.parse(event.data)));
    source.addEventListener("entries", (event) => this.#tell("entries", JSON.parse(event.data)));
    source.addEventListener("error", () => {
      if (source !== this.source) return;
      this.#lost();
      if (source.readyState === EventSource.CLOSED) this.#poll();
    });
  }

  stop() {
    this.asked = null;
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  /** For a server that lacks or refuses the stream: requests the statistics, then the stream again. */
  async #poll() {
    this.stop();
    const asked = (this.asked = {});
    try {
      if (this.able.has("administration")) this.#stats(await get("/stats", {}, once()));
      else await this.#look();
      if (asked === this.asked) this.#tell("open");
    } catch (error) {
      if (error.status === 503) this.#troubled(error.message);
      else this.#lost();
    }
    if (this.isHalted || asked !== this.asked) return;
    this.timer = setTimeout(() => this.start(), AGAIN_MS);
  }

  /** The server answers, but a service behind it does not. */
  #troubled(words) {
    this.trouble = words;
    this.#become("live");
    this.#tell("look");
  }

  /** Checks whether a server without statistics answers, and reads its warnings. */
  async #look() {
    await get("/capabilities", {}, once());
    this.warnings = await warnings(once());
    this.trouble = "";
    this.#become("live");
    this.#tell("look");
  }

  #stats(stats) {
    this.heardAt = Date.now();
    this.trouble = "";
    this.stats = stats;
    this.#become("live");
    this.#tell("stats", stats);
  }

  #lost() {
    if (this.state !== "lost") this.lostAt = Date.now();
    this.#become("lost");
  }

  #watch() {
    if (this.source !== null && this.state === "live" && Date.now() - this.heardAt > SILENT_MS) {
      this.#lost();
      this.start();
    }
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.#tell("state");
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

/** Options of a request that is soon repeated: a stalled server counts as one that does not answer. */
function once() {
  return { tries: 1, signal: AbortSignal.timeout(SILENT_MS) };
}
