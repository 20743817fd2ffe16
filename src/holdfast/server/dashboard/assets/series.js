// The statistics of the last minutes: samples of the server's counters; a rate is the difference of two samples.

const KEPT = 600;
const RATE_MS = 5_000;
const LATENCY_MS = 30_000;

/** Samples of the server's statistics, oldest first. */
export class Series {
  constructor() {
    this.samples = [];
    this.started = 0;
  }

  add(stats) {
    const last = this.samples.at(-1);
    if (last !== undefined && stats.now_ms <= last.at) return;
    if (stats.started_at_ms !== this.started) this.samples = []; // the counters have restarted
    this.started = stats.started_at_ms;
    const totals = stats.totals;
    this.samples.push({
      at: stats.now_ms,
      queued: stats.states.QUEUED ?? 0,
      running: stats.states.RUNNING ?? 0,
      submitted: totals ? totals.submitted : null,
      // Without totals, the number of kept jobs; it is too low while jobs are evicted.
      done: totals ? totals.finished.done : stats.states.DONE ?? 0,
      failed: totals ? totals.finished.failed : stats.states.FAILED ?? 0,
      expired: totals ? totals.leases_expired : 0,
      totals,
    });
    if (this.samples.length > KEPT) this.samples.splice(0, this.samples.length - KEPT);
  }

  /** Takes over the samples that the server recorded before this page was opened. */
  remember(recent) {
    if (this.samples.length || !recent.samples.length) return;
    const { wait_ms_bounds, run_ms_bounds } = recent;
    this.started = recent.started_at_ms;
    this.samples = recent.samples.map((one) => ({
      at: one.at_ms,
      queued: one.queued,
      running: one.running,
      submitted: one.submitted,
      done: one.done,
      failed: one.failed,
      expired: one.leases_expired,
      totals: { ...one, wait_ms_bounds, run_ms_bounds },
    }));
  }

  /** The rate per second at a sample, over the seconds before it; null if it is unknown. */
  rate(name, index = this.samples.length - 1) {
    const [before, now] = this.#pair(index, RATE_MS);
    if (before === null || now[name] === null || before[name] === null) return null;
    return (Math.max(0, now[name] - before[name]) * 1_000) / (now.at - before.at);
  }

  /** The growth of a counter within the given milliseconds. */
  grown(name, withinMs) {
    const [before, now] = this.#pair(this.samples.length - 1, withinMs);
    return before === null ? 0 : Math.max(0, now[name] - before[name]);
  }

  /** The time of the oldest sample if the samples cover less than the given milliseconds; else null. */
  since(withinMs) {
    const first = this.samples[0]?.at ?? null;
    return first !== null && this.samples.at(-1).at - first < withinMs ? first : null;
  }

  /** The milliseconds between the newest sample and the oldest one within the given milliseconds. */
  spanned(withinMs) {
    const [before, now] = this.#pair(this.samples.length - 1, withinMs);
    return before === null ? 0 : now.at - before.at;
  }

  /** The quantile of the wait or run times of the last half minute; null if it is unknown. */
  quantile(kind, share, index = this.samples.length - 1) {
    const [before, now] = this.#pair(index, LATENCY_MS);
    if (before === null || !now.totals || !before.totals) return null;
    const [bounds, counts] = [now.totals[`${kind}_ms_bounds`], now.totals[`${kind}_ms_counts`]];
    const old = before.totals[`${kind}_ms_counts`];
    return quantile(bounds, counts.map((value, place) => value - old[place]), share);
  }

  #pair(index, withinMs) {
    const now = this.samples[index];
    if (now === undefined || index === 0) return [null, now];
    let first = index - 1;
    while (first > 0 && now.at - this.samples[first - 1].at <= withinMs) first -= 1;
    return [this.samples[first], now];
  }
}

/** The quantile of a histogram, interpolated within a bucket; null if it is empty. */
export function quantile(bounds, counts, share) {
  const all = counts.reduce((sum, value) => sum + value, 0);
  if (all <= 0) return null;
  let below = 0;
  for (const [place, value] of counts.entries()) {
    if (below + value >= share * all) {
      const low = place ? bounds[place - 1] : 0;
      const high = bounds[place] ?? low;
      return low + (high - low) * ((share * all - below) / value);
    }
    below += value;
  }
  return bounds.at(-1);
}
