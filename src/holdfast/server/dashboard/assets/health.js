// The rules that judge the health of the system; each finding describes a problem and links to a page. `holdfast top`
// has the same rules, in cli/health.py.

import { count, plural, span } from "./format.js";

const MINUTE_MS = 60_000;
const SILENT_MS = 20_000;
const OLD_MS = 60_000;
const VERY_OLD_MS = 600_000;
/** Jobs are stalled if all slots are busy, and the oldest has waited and none has ended for at least this long. */
const STALLED_MS = 5_000;
const TYPES_SHOWN = 8;

/** `{level, word, findings}`; levels are good, idle, unknown, warn and bad. */
export function health({ able, live, stats, queues, workers, series }) {
  if (live.state === "lost") return lost(live);
  if (live.trouble) return troubled(live);
  if (!able.has("administration")) return without(able, live);
  if (stats === null || queues === null) return { level: "unknown", word: "Loading", findings: [] };
  const open = queues.filter((queue) => queue.mode !== "PAUSED" && queue.ready > 0);
  const findings = [
    ...warned(stats), ...withoutWorker(open, stats, workers), ...saturated(open, workers, series), ...old(open, stats),
    ...closed(queues), ...failing(series), ...silent(workers, series),
  ];
  if (findings.some((finding) => finding.level === "bad")) return { level: "bad", word: "Critical", findings };
  if (findings.some((finding) => finding.level === "warn")) return { level: "warn", word: "Warning", findings };
  if (findings.length) return { level: "good", word: "Busy", findings };
  const isIdle = !stats.states.RUNNING && !stats.states.QUEUED;
  return { level: isIdle ? "idle" : "good", word: isIdle ? "Healthy, idle" : "Healthy", findings };
}

function troubled(live) {
  const text = `${live.trouble.charAt(0).toUpperCase()}${live.trouble.slice(1)}.`;
  return { level: "bad", word: "Critical", findings: [{ level: "bad", text, href: "#/jobs" }] };
}

function without(able, live) {
  const found = [...warned(live)];
  const findings = [...found, { level: "warn", text: able.lack("administration"), href: "#/jobs" }];
  return found.length ? { level: "bad", word: "Critical", findings } : { level: "unknown", word: "No statistics", findings };
}

function lost(live) {
  const text = `The server has not answered for ${span(Date.now() - live.lostAt)}; the page shows old data.`;
  return { level: "bad", word: "No connection", findings: [{ level: "bad", text, href: "#/" }] };
}

/** Warnings of the server, in its statistics or in its readiness page. */
function* warned({ warnings }) {
  for (const text of warnings ?? [])
    yield { level: "bad", text: `${text.charAt(0).toUpperCase()}${text.slice(1)}.`, href: "#/" };
}

/** Jobs that would never run: no worker is connected, or none that knows their types. */
function* withoutWorker(open, stats, workers) {
  if (open.length && !stats.workers) {
    yield { level: "bad", text: `${plural(ready(open), "job waits", "jobs wait")}, but no worker is connected.`, href: "#/workers" };
    return;
  }
  if (!workers) return;
  const known = new Set(workers.flatMap((worker) => worker.types));
  const types = new Map();
  for (const queue of open)
    for (const [name, jobs] of Object.entries(queue.types ?? {}))
      if (!known.has(name)) types.set(name, (types.get(name) ?? 0) + jobs);
  if (!types.size) return;
  const ranked = [...types].sort((one, two) => two[1] - one[1]);
  const shown = ranked.slice(0, TYPES_SHOWN).map(([name, jobs]) => `${name} (${count(jobs)})`).join(", ");
  const more = ranked.length > TYPES_SHOWN ? ` and ${ranked.length - TYPES_SHOWN} more` : "";
  const jobs = ranked.reduce((sum, [, number]) => sum + number, 0);
  yield {
    level: "bad",
    text: `${plural(jobs, "job waits", "jobs wait")} of ${ranked.length === 1 ? "a type" : "types"} that no connected worker knows: ${shown}${more}.`,
    href: `#/jobs?status=QUEUED&type=${encodeURIComponent(ranked[0][0])}`,
  };
}

/** All slots are busy while jobs wait: a note while jobs end, otherwise a warning. */
function* saturated(open, workers, series) {
  const slotted = (workers ?? []).filter((worker) => worker.slots);
  if (!open.length || !slotted.length || slotted.some((worker) => worker.running < worker.slots)) return;
  const oldest = open.reduce((best, queue) => (queue.oldest_age_ms > best.oldest_age_ms ? queue : best));
  const ended = series.grown("done", MINUTE_MS) + series.grown("failed", MINUTE_MS);
  const within = series.spanned(MINUTE_MS);
  const slots = slotted.reduce((sum, worker) => sum + worker.slots, 0);
  const taken = slots === 1 ? "The only slot is" : `All ${count(slots)} slots are`;
  const counted = ended ? plural(ended, "job has", "jobs have") : "no job has";
  const since = within ? `; ${counted} ended in the last ${span(within)}` : "";
  const wait = `${plural(ready(open), "job waits", "jobs wait")}, the oldest for ${span(oldest.oldest_age_ms)} in queue ${oldest.name}`;
  yield {
    level: !ended && STALLED_MS <= within && within <= oldest.oldest_age_ms ? "warn" : "good",
    text: `${taken} busy and ${wait}${since}.`,
    href: "#/jobs?status=RUNNING&oldest_first=true",
  };
}

function* old(open, stats) {
  if (!stats.workers) return;
  for (const queue of open) {
    if (queue.oldest_age_ms < OLD_MS) continue;
    yield {
      level: queue.oldest_age_ms >= VERY_OLD_MS ? "bad" : "warn",
      text: `A job in queue ${queue.name} has waited for ${span(queue.oldest_age_ms)}.`,
      href: `#/jobs?status=QUEUED&queue=${encodeURIComponent(queue.name)}&oldest_first=true`,
    };
  }
}

function ready(queues) {
  return queues.reduce((sum, queue) => sum + queue.ready, 0);
}

function* closed(queues) {
  for (const queue of queues) {
    if (queue.mode === "OPEN") continue;
    const why = queue.reason ? `: ${queue.reason}` : "";
    const held = plural(queue.ready + queue.delayed, "job");
    const text = queue.mode === "PAUSED" ? `is paused and holds ${held}` : `is draining and accepts no jobs`;
    yield { level: "warn", text: `Queue ${queue.name} ${text}${why}.`, href: "#/queues" };
  }
}

function* failing(series) {
  const failed = series.grown("failed", MINUTE_MS);
  const share = failed / (failed + series.grown("done", MINUTE_MS) || 1);
  if (failed < 3 || share < 0.05) return;
  yield {
    level: share >= 0.5 ? "bad" : "warn",
    text: `${plural(failed, "job")} failed in the last minute, ${Math.round(share * 100)} % of those that ended.`,
    href: "#/jobs?status=FAILED",
  };
}

function* silent(workers, series) {
  for (const worker of workers ?? []) {
    if (worker.heard_ms_ago < SILENT_MS) continue;
    const text = `Worker ${worker.worker_id} has sent no heartbeat for ${span(worker.heard_ms_ago)}.`;
    yield { level: "warn", text, href: "#/workers" };
  }
  const expired = series.grown("expired", 5 * MINUTE_MS);
  if (expired) yield { level: "warn", text: `${plural(expired, "lease")} expired in the last five minutes: a worker was lost or stuck.`, href: "#/workers" };
}
