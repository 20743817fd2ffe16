// The page: selects the view, holds the data that all views share, and tracks the connection to the server.

import { Able } from "./able.js";
import { get, leave } from "./api.js";
import { cut, h, replace, say, set } from "./dom.js";
import { bytes, count } from "./format.js";
import { button } from "./parts.js";
import { Live } from "./live.js";
import { Series } from "./series.js";
import { JobView } from "./view_job.js";
import { JobsView } from "./view_jobs.js";
import { LoginView } from "./view_login.js";
import { MissingView } from "./view_missing.js";
import { Overview } from "./view_overview.js";
import { QueuesView } from "./view_queues.js";
import { SchedulesView } from "./view_schedules.js";
import { WorkersView } from "./view_workers.js";

const VIEWS = { overview: Overview, queues: QueuesView, workers: WorkersView, schedules: SchedulesView };
const NEEDS = { queues: "administration", workers: "administration", schedules: "schedules" };
const SCOPES = ["read", "submit", "work", "admin"];
const LINK_WORDS = { waiting: "connecting", live: "live", lost: "no connection" };

/** The data that all views share. */
export class Page {
  constructor() {
    this.able = new Able();
    this.live = new Live(this.able);
    this.series = new Series();
    this.queues = null;
    this.workers = null;
    this.main = document.getElementById("main");
    this.link = document.getElementById("link");
    this.who = document.getElementById("who");
    this.foot = document.getElementById("foot");
    this.view = null;
    this.path = null;
    this.isAsking = false;
    this.live.addEventListener("stats", () => this.#stats());
    this.live.addEventListener("state", () => this.#state());
    this.live.addEventListener("entries", (event) => this.view?.heard?.(event.detail));
    this.live.addEventListener("open", () => this.view?.opened?.());
    this.live.addEventListener("look", () => this.view?.stats?.(null));
    window.addEventListener("hashchange", () => this.route(true));
    document.addEventListener("holdfast:login", () => this.#login());
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      this.main.focus();
    });
  }

  /** The server's time if it is connected, otherwise the browser's. */
  get now() {
    return this.live.stats && this.live.state === "live" ? this.live.stats.now_ms : Date.now();
  }

  async start() {
    if (!(await this.#meet())) return;
    await this.able.ask();
    say(this.foot, `Holdfast ${this.able.version} · ${this.able.backend}`);
    try {
      if (this.able.has("totals")) this.series.remember(await get("/stats/recent"));
    } catch {
      // the plots start empty
    }
    if (this.view instanceof LoginView) return; // the server requires a login meanwhile; keep the typed text
    this.live.start();
    this.route();
  }

  /** Reads the session; actions that its scopes do not allow are hidden. */
  async #meet() {
    let [name, scopes] = ["", SCOPES];
    try {
      ({ name, scopes } = await get("/session"));
    } catch (error) {
      if (error.status === 401) return false;
    }
    document.body.dataset.scopes = (scopes.includes("admin") ? SCOPES : scopes).join(" ");
    const isToken = name !== "" && !/:|^[\d.]+$/.test(name); // an address means that there is no login
    replace(this.who, isToken ? [cut(name, 40), button("Log out", () => this.#leave(), { class: "quiet" })] : []);
    return true;
  }

  async #leave() {
    await leave();
    this.#login();
  }

  /** Shows the view of the page's address; after a followed link, its heading gets the focus. */
  route(isFollowed = this.view !== null) {
    const hash = location.hash.replace(/^#/, "") || "/";
    const [path, query = ""] = hash.split("?");
    const parts = path.split("/").filter(Boolean);
    const name = parts[0] ?? "overview";
    if (this.path === path && this.view?.filter) {
      this.view.filter(new URLSearchParams(query)); // the same list, other filters
      return;
    }
    this.path = path;
    this.view?.close?.();
    this.view = this.#made(name, parts[1], new URLSearchParams(query));
    this.#mark(name);
    replace(this.main, this.view.node);
    document.title = `${this.view.title} · Holdfast`;
    this.live.follow(this.view.job ?? "");
    this.view.open?.();
    if (isFollowed) this.main.querySelector("h1")?.focus();
    window.scrollTo(0, 0);
  }

  #made(name, id, query) {
    if (name === "jobs") return id ? new JobView(this, decodeURIComponent(id)) : new JobsView(this, query);
    const title = name.charAt(0).toUpperCase() + name.slice(1);
    if (name in NEEDS && !this.able.has(NEEDS[name])) return new MissingView(this, title, NEEDS[name]);
    return new (VIEWS[name] ?? Overview)(this);
  }

  #mark(name) {
    for (const link of document.querySelectorAll("nav a")) {
      set(link, "aria-current", link.dataset.view === name ? "page" : null);
    }
  }

  #login() {
    if (this.view instanceof LoginView) return;
    this.live.halt();
    this.view?.close?.();
    this.path = null;
    replace(this.who);
    this.view = new LoginView(() => {
      this.view = null;
      this.start();
    });
    replace(this.main, this.view.node);
    document.title = `${this.view.title} · Holdfast`;
    this.view.open();
  }

  async #stats() {
    const stats = this.live.stats;
    this.series.add(stats);
    // Without an event stream there is no common position.
    const place = this.able.has("feed") ? ` · epoch ${count(stats.epoch)} · position ${count(stats.position)}` : "";
    say(this.foot, `Holdfast ${stats.version} · ${stats.backend}${place} · memory ${bytes(stats.bytes_held)}${stats.bytes_held_max ? ` of ${bytes(stats.bytes_held_max)}` : ""}`);
    await this.look();
    this.view?.stats?.(stats);
  }

  /** Loads the queues and workers for all views. */
  async look() {
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      const [queues, workers] = await Promise.all([get("/queues"), get("/workers")]);
      this.queues = queues.queues;
      this.workers = workers.workers;
    } catch (error) {
      if (error.isMissing) [this.queues, this.workers] = [[], []];
    } finally {
      this.isAsking = false;
    }
  }

  #state() {
    set(this.link, "data-state", this.live.state);
    say(this.link, LINK_WORDS[this.live.state]);
    this.view?.stats?.(this.live.stats);
  }
}

const page = new Page();
window.addEventListener("error", () => {
  page.foot.append(h("span", {}, " · an error occurred on this page; reload it"));
});
page.start();
