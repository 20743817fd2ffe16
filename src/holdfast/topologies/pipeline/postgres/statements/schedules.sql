-- name: begin
-- Limits how long a client that stalls inside the transaction blocks others.
SELECT set_config('idle_in_transaction_session_timeout', '1000', true);

-- name: one_setter
-- One setter at a time: names and their number are read before they are changed.
SELECT pg_advisory_xact_lock(7162950771104343923);

-- name: count
SELECT count(*), holdfast.now_ms() FROM holdfast.schedules;

-- name: lock
SELECT
    id, spec, created_ms, next_ms, last_tick_ms, coalesce(last_job_id::text, ''), fired, skipped, missed, is_paused,
    holdfast.now_ms()
FROM holdfast.schedules WHERE name = %(name)s
FOR UPDATE;

-- name: get
SELECT
    id, spec, created_ms, next_ms, last_tick_ms, coalesce(last_job_id::text, ''), fired, skipped, missed, is_paused
FROM holdfast.schedules WHERE name = %(name)s;

-- name: all
SELECT
    id, spec, created_ms, next_ms, last_tick_ms, coalesce(last_job_id::text, ''), fired, skipped, missed, is_paused
FROM holdfast.schedules ORDER BY name COLLATE "C";

-- name: set
-- The counters of an existing schedule are kept.
INSERT INTO holdfast.schedules AS s (name, spec, type, queue, cron, timezone, every_ms, at_ms, created_ms, next_ms)
VALUES (
    %(name)s, %(spec)b, %(type)s, %(queue)s, %(cron)s, %(timezone)s, %(every_ms)b, %(at_ms)b, %(now)b, %(next_ms)b
)
ON CONFLICT (name) DO UPDATE SET
    spec = excluded.spec,
    type = excluded.type,
    queue = excluded.queue,
    cron = excluded.cron,
    timezone = excluded.timezone,
    every_ms = excluded.every_ms,
    at_ms = excluded.at_ms,
    created_ms = excluded.created_ms,
    next_ms = excluded.next_ms;

-- name: delete
DELETE FROM holdfast.schedules WHERE name = %(name)s RETURNING name;

-- name: pause
UPDATE holdfast.schedules SET is_paused = %(is_paused)b, next_ms = %(next_ms)b WHERE name = %(name)s;

-- name: is_draining
SELECT FROM holdfast.queues WHERE name = %(queue)s AND mode = 3;

-- name: triggered
UPDATE holdfast.schedules SET last_job_id = %(job_id)s::uuid, fired = fired + 1 WHERE id = %(id)b;

-- name: lead
-- While the lease of another holder lasts, the row is not even locked.
UPDATE holdfast.leaders SET
    epoch = epoch + (holder <> %(holder)s)::integer,
    holder = %(holder)s,
    lease_until_ms = holdfast.now_ms() + %(lease_ms)b::bigint
WHERE role = 'cron' AND (holder = %(holder)s OR lease_until_ms <= holdfast.now_ms())
RETURNING epoch;

-- name: resign
UPDATE holdfast.leaders SET lease_until_ms = 0
WHERE role = 'cron' AND holder = %(holder)s AND epoch = %(epoch)b::bigint;

-- name: lock_due
-- Locks the leadership, so that it is not taken over before this transaction ends, and the earliest tick that is due.
WITH mine AS MATERIALIZED (
    SELECT set_config('idle_in_transaction_session_timeout', '1000', true) FROM holdfast.leaders
    WHERE role = 'cron' AND holder = %(holder)s AND epoch = %(epoch)b::bigint AND lease_until_ms > holdfast.now_ms()
    FOR SHARE
), due AS MATERIALIZED (
    SELECT
        id, spec, created_ms, next_ms, last_tick_ms, coalesce(last_job_id::text, ''), fired, skipped, missed, is_paused,
        holdfast.now_ms(),
        EXISTS (SELECT FROM holdfast.queues q WHERE q.name = s.queue AND q.mode = 3) AS is_draining,
        EXISTS (SELECT FROM holdfast.jobs j WHERE j.id = s.last_job_id AND j.state < 3) AS is_busy
    FROM holdfast.schedules s
    WHERE EXISTS (SELECT FROM mine)
        AND next_ms > 0 AND NOT is_paused AND next_ms <= (SELECT holdfast.now_ms())
    ORDER BY next_ms, name LIMIT 1
    FOR UPDATE OF s
)
SELECT l.is_leading, due.* FROM (SELECT EXISTS (SELECT FROM mine) AS is_leading) l LEFT JOIN due ON true;

-- name: tick
-- Inserts the tick unless it exists, and advances its schedule in any case.
WITH entered AS (
    INSERT INTO holdfast.ticks (schedule_id, tick_ms, outcome, job_id, epoch, done_ms)
    VALUES (%(id)b, %(tick_ms)b, %(outcome)s, %(job_id)s::uuid, %(epoch)b, %(now)b)
    ON CONFLICT DO NOTHING
    RETURNING job_id, (outcome = 'fired')::integer AS fired, (outcome = 'skipped')::integer AS skipped
), moved AS (
    UPDATE holdfast.schedules s SET
        next_ms = %(next_ms)b,
        last_tick_ms = %(tick_ms)b,
        last_job_id = coalesce((SELECT e.job_id FROM entered e), s.last_job_id),
        fired = s.fired + coalesce((SELECT e.fired FROM entered e), 0),
        skipped = s.skipped + coalesce((SELECT e.skipped FROM entered e), 0),
        missed = s.missed + %(missed)b::bigint
    WHERE s.id = %(id)b
)
SELECT EXISTS (SELECT FROM entered);

-- name: prune
DELETE FROM holdfast.ticks WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM holdfast.ticks WHERE done_ms < %(before)b::bigint
    ORDER BY done_ms LIMIT 100 FOR UPDATE SKIP LOCKED
));

-- name: next_due
SELECT greatest(0, d.next_ms - holdfast.now_ms()) FROM (
    SELECT next_ms FROM holdfast.schedules WHERE next_ms > 0 AND NOT is_paused ORDER BY next_ms LIMIT 1
) d;

-- name: now
SELECT holdfast.now_ms();
