// Groups the newest failed jobs by type and by the common part of their reasons.

const VARYING = [
  [/'[^']*'|"[^"]*"/g, "…"],
  [/0x[0-9a-f]+/gi, "0x…"],
  [/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi, "…"],
  [/\b[0-9a-f]{16,}\b/gi, "…"],
  [/\d+(\.\d+)?/g, "#"],
];

/** Returns the reason without the parts that vary from job to job. */
export function kind(reason) {
  return VARYING.reduce((text, [pattern, instead]) => text.replace(pattern, instead), reason.slice(0, 300)).trim();
}

/** Returns the groups of failed jobs, largest first. */
export function grouped(jobs) {
  const groups = new Map();
  for (const job of jobs) {
    const key = JSON.stringify([job.type, kind(job.failure_reason)]);
    const group = groups.get(key) ?? { key, type: job.type, queue: job.queue, count: 0, newest: job };
    group.count += 1;
    if (job.finished_at_ms > group.newest.finished_at_ms) group.newest = job;
    groups.set(key, group);
  }
  return [...groups.values()].sort((one, two) => two.count - one.count || two.newest.finished_at_ms - one.newest.finished_at_ms);
}
