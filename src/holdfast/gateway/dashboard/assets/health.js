// Is it healthy? A few rules over the numbers; each finding says what is wrong and where to look.

import { plural, span } from "./format.js";

const MINUTE_MS = 60_000;
const SILENT_MS = 20_000;
const OLD_MS = 60_000;
const VERY_OLD_MS = 600_000;

/** `{level, word, findings}`; levels are good, idle, unknown, warn and bad. */
export function health({ able, live, stats, queues, workers, series }) {
  if (live.state === "lost") return lost(live);
  if (live.trouble) return troubled(live);
  if (!able.has("administration")) return without(able);
  if (stats === null || queues === null) return { level: "idle", word: "Looking", findings: [] };
  const findings = [...waiting(queues, stats), ...closed(queues), ...failing(series), ...silent(workers, series)];
  if (findings.some((finding) => finding.level === "bad")) return { level: "bad", word: "Needs attention", findings };
  if (findings.length) return { level: "warn", word: "Have a look", findings };
  const isIdle = !stats.states.RUNNING && !stats.states.QUEUED;
  return { level: isIdle ? "idle" : "good", word: isIdle ? "Healthy, idle" : "Healthy", findings };
}

function troubled(live) {
  const text = `${live.trouble.charAt(0).toUpperCase()}${live.trouble.slice(1)}.`;
  return { level: "bad", word: "Needs attention", findings: [{ level: "bad", text, href: "#/jobs" }] };
}

function without(able) {
  const text = able.lack("administration");
  return { level: "unknown", word: "No numbers", findings: [{ level: "warn", text, href: "#/jobs" }] };
}

function lost(live) {
  const text = `The server has not answered for ${span(Date.now() - live.lostAt)}; what is shown is from before.`;
  return { level: "bad", word: "No connection", findings: [{ level: "bad", text, href: "#/" }] };
}

function* waiting(queues, stats) {
  const open = queues.filter((queue) => queue.mode !== "PAUSED" && queue.ready > 0);
  const ready = open.reduce((sum, queue) => sum + queue.ready, 0);
  if (ready && !stats.workers) {
    yield { level: "bad", text: `${plural(ready, "job waits", "jobs wait")} and no worker is connected.`, href: "#/workers" };
    return;
  }
  for (const queue of open) {
    if (queue.oldest_age_ms < OLD_MS) continue;
    const slots = stats.slots && stats.leases >= stats.slots ? "; every slot is busy" : "";
    yield {
      level: queue.oldest_age_ms >= VERY_OLD_MS ? "bad" : "warn",
      text: `In queue ${queue.name} a job has waited for ${span(queue.oldest_age_ms)}${slots}.`,
      href: `#/jobs?status=QUEUED&queue=${encodeURIComponent(queue.name)}&oldest_first=true`,
    };
  }
}

function* closed(queues) {
  for (const queue of queues) {
    if (queue.mode === "OPEN") continue;
    const why = queue.reason ? `: ${queue.reason}` : "";
    const held = plural(queue.ready + queue.delayed, "job");
    const text = queue.mode === "PAUSED" ? `is paused and holds ${held}` : `drains and takes no jobs`;
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
    const text = `Worker ${worker.worker_id} has been silent for ${span(worker.heard_ms_ago)}.`;
    yield { level: "warn", text, href: "#/workers" };
  }
  const expired = series.grown("expired", 5 * MINUTE_MS);
  if (expired) yield { level: "warn", text: `${plural(expired, "lease")} expired lately: a worker was lost or stuck.`, href: "#/workers" };
}
