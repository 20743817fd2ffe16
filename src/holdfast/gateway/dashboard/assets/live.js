// What happens now: one stream of the server, with its numbers each second, and the entries of jobs that are looked at.

import { get } from "./api.js";

const AGAIN_MS = 2_000;
const SILENT_MS = 15_000;

/** Tells `stats`, `entries`, `open` and `state`; begins again whenever the server was away. */
export class Live extends EventTarget {
  constructor() {
    super();
    this.stats = null;
    this.state = "waiting";
    this.lostAt = 0;
    this.job = "";
    this.source = null;
    this.timer = 0;
    this.heardAt = 0;
    this.isHalted = false;
    this.isWithout = false; // what keeps the jobs has no numbers at all
    setInterval(() => this.#watch(), SILENT_MS / 3);
  }

  /** Also the entries of this job from now on; of none, if it is empty. */
  follow(job) {
    if (this.source !== null && this.job === job) return;
    this.job = job;
    this.start();
  }

  /** Nothing is asked any more until it is started again. */
  halt() {
    this.isHalted = true;
    this.stop();
  }

  start() {
    this.isHalted = false;
    this.stop();
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
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  /** A server that refuses the stream is asked for its numbers, and for the stream again. */
  async #poll() {
    this.stop();
    try {
      this.#stats(await get("/stats", {}, { tries: 1 }));
      this.#tell("open");
    } catch (error) {
      this.isWithout = error.isMissing === true;
      if (this.isWithout) this.#become("live");
    }
    if (this.isHalted) return;
    this.timer = setTimeout(() => this.start(), this.isWithout ? AGAIN_MS * 5 : AGAIN_MS);
  }

  #stats(stats) {
    this.heardAt = Date.now();
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
