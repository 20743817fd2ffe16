-- name: start
-- Grants the right to run: of several transactions, only the first one finds the row QUEUED and moves it.
WITH moment AS MATERIALIZED (
    SELECT holdfast.now_ms() AS ms
), wanted AS MATERIALIZED (
    SELECT j.id, j.number FROM holdfast.jobs j
    -- Looked up by id: `state + 0` prevents a plan that walks along the index of all waiting jobs.
    WHERE j.id = ANY(%(ids)b::text[]::uuid[])
        AND j.state + 0 = 1
        AND j.not_before_ms <= (SELECT ms FROM moment)
        AND NOT EXISTS (SELECT FROM holdfast.queues q WHERE q.name = j.queue AND q.mode = 2)
    ORDER BY j.id
    FOR UPDATE OF j
), granted AS MATERIALIZED (
    SELECT o.id, nextval('holdfast.tokens') AS token FROM (SELECT id FROM wanted ORDER BY number OFFSET 0) o
), started AS (
    UPDATE holdfast.jobs j SET
        state = 2,
        token = w.token,
        worker = %(worker)s::text,
        started_ms = m.ms,
        lease_until_ms = m.ms + %(lease_ms)b::bigint,
        grants = j.grants + 1,
        version = j.version + 1
    FROM granted w, moment m
    WHERE j.id = w.id
    RETURNING j.*
), counted AS (
    INSERT INTO holdfast.tallies (queue, state, jobs)
    SELECT s.queue, v.state, sum(v.jobs) FROM started s, (VALUES (1, -1), (2, 1)) v(state, jobs) GROUP BY 1, 2
)
SELECT
    s.token, s.id::text, s.type, s.payload, s.failures + s.losses + 1, s.timeout_ms, s.simulated, s.extra, s.queue,
    s.max_attempts - s.failures - 1, s.priority, s.started_ms
FROM started s ORDER BY s.number;

-- name: extend
-- A lease that has most of its time left (`UNMOVED_PART`) is not updated, because heartbeats are frequent.
WITH moment AS MATERIALIZED (
    SELECT holdfast.now_ms() AS ms, set_config('synchronous_commit', 'off', true)
), held AS MATERIALIZED (
    SELECT j.id, j.token, j.cancel_requested, j.lease_until_ms FROM holdfast.jobs j
    WHERE j.state = 2 AND j.worker = %(worker)s::text AND j.token = ANY(%(tokens)b::bigint[])
    ORDER BY j.id
    FOR UPDATE
), moved AS (
    UPDATE holdfast.jobs j SET lease_until_ms = m.ms + %(lease_ms)b::bigint
    FROM held h, moment m
    WHERE j.id = h.id AND abs(m.ms + %(lease_ms)b::bigint - h.lease_until_ms) * 4 >= %(lease_ms)b::bigint
)
SELECT token, cancel_requested FROM held ORDER BY token;

-- name: lock_jobs
SELECT
    id::text, type, queue, priority, max_attempts, max_losses, timeout_ms,
    backoff_kind, backoff_base_ms, backoff_max_ms, simulated,
    state, token, result_token, worker, grants, failures, losses, cancel_requested, cancel_reason,
    created_ms, not_before_ms, started_ms, holdfast.now_ms()
FROM holdfast.jobs WHERE id = ANY(%(ids)b::text[]::uuid[])
ORDER BY jobs.id
FOR UPDATE;

-- name: lock_held
SELECT
    id::text, type, queue, priority, max_attempts, max_losses, timeout_ms,
    backoff_kind, backoff_base_ms, backoff_max_ms, simulated,
    state, token, result_token, worker, grants, failures, losses, cancel_requested, cancel_reason,
    created_ms, not_before_ms, started_ms, holdfast.now_ms()
FROM holdfast.jobs WHERE state = 2 AND worker = %(worker)s::text
ORDER BY jobs.id
FOR UPDATE;

-- name: lock_overdue
SELECT
    id::text, type, queue, priority, max_attempts, max_losses, timeout_ms,
    backoff_kind, backoff_base_ms, backoff_max_ms, simulated,
    state, token, result_token, worker, grants, failures, losses, cancel_requested, cancel_reason,
    created_ms, not_before_ms, started_ms, holdfast.now_ms()
FROM holdfast.jobs WHERE state = 2 AND lease_until_ms <= (SELECT holdfast.now_ms())
ORDER BY lease_until_ms
LIMIT %(count)b::bigint
FOR UPDATE SKIP LOCKED;

-- name: lock_waiting
SELECT
    id::text, type, queue, priority, max_attempts, max_losses, timeout_ms,
    backoff_kind, backoff_base_ms, backoff_max_ms, simulated,
    state, token, result_token, worker, grants, failures, losses, cancel_requested, cancel_reason,
    created_ms, not_before_ms, started_ms, holdfast.now_ms()
FROM holdfast.jobs WHERE id IN (
    SELECT id FROM holdfast.jobs
    WHERE state = 1 AND priority = ANY('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) AND queue = %(queue)s::text
        AND number <= %(last)b::bigint
    LIMIT %(count)b::bigint
) AND state = 1
ORDER BY jobs.id
FOR UPDATE;

-- name: last_number
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM holdfast.numbers;

-- name: settle
-- Writes the outcomes of rows that this transaction has locked: back to QUEUED, or a terminal state.
WITH rows AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)b::text[]::uuid[], %(states)b::bigint[], %(befores)b::bigint[], %(queues)b::text[],
        %(not_before)b::bigint[], %(visible)b::bigint[], %(failed)b::bigint[], %(lost)b::bigint[],
        %(result_tokens)b::bigint[], %(cancels)b::boolean[], %(outputs)b::bytea[], %(summaries)b::text[],
        %(reasons)b::text[], %(runtimes)b::bigint[], %(tokens)b::bigint[], %(workers)b::text[],
        %(started)b::bigint[], %(details)b::text[], %(losses)b::text[]
    ) AS r(
        id, state, before, queue, not_before_ms, visible_ms, failed, lost, result_token, cancel_requested,
        output, summary, reason, runtime_ms, token, worker, started_ms, detail, loss
    )
), moved AS (
    UPDATE holdfast.jobs j SET
        state = r.state,
        not_before_ms = r.not_before_ms,
        visible_ms = r.visible_ms,
        finished_ms = CASE WHEN r.state > 2 THEN %(now)b::bigint ELSE 0 END,
        lease_until_ms = 0,
        worker = '',
        failures = j.failures + r.failed,
        losses = j.losses + r.lost,
        result_token = r.result_token,
        cancel_requested = r.cancel_requested,
        version = j.version + 1
    FROM rows r WHERE j.id = r.id
), done AS (
    INSERT INTO holdfast.completed (job_id, finished_ms, runtime_ms, summary, output)
    SELECT id, %(now)b::bigint, runtime_ms, summary, output FROM rows WHERE state = 3
), ended AS (
    INSERT INTO holdfast.failed (job_id, finished_ms, runtime_ms, state, failure_reason, summary, output)
    SELECT id, %(now)b::bigint, runtime_ms, state, reason, summary, output FROM rows WHERE state > 3
), tried AS (
    INSERT INTO holdfast.executions (
        job_id, token, worker, started_ms, ended_ms, outcome, reason, runtime_ms, summary, detail, loss
    )
    SELECT
        id, token, worker, started_ms, %(now)b::bigint, state, reason, runtime_ms,
        -- The summary of a finished job is stored with its result.
        CASE WHEN state = 1 THEN summary ELSE '' END, detail, loss
    FROM rows WHERE before = 2
), counted AS (
    INSERT INTO holdfast.tallies (queue, state, jobs)
    SELECT c.queue, c.state, sum(c.jobs)
    FROM (
        SELECT queue, state, 1 AS jobs FROM rows UNION ALL SELECT queue, before, -1 FROM rows
    ) c GROUP BY 1, 2
)
SELECT count(*) FROM rows;

-- name: finish
-- Finishes successful attempts in one statement; rows that this worker does not lease any more are left unchanged.
WITH moment AS MATERIALIZED (
    SELECT holdfast.now_ms() AS ms
), reported AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)b::text[]::uuid[], %(tokens)b::bigint[], %(outputs)b::bytea[], %(summaries)b::text[], %(runtimes)b::bigint[]
    ) AS r(id, token, output, summary, runtime_ms)
    ORDER BY id
), held AS MATERIALIZED (
    SELECT r.* FROM reported r CROSS JOIN LATERAL (
        SELECT FROM holdfast.jobs j
        WHERE j.id = r.id AND j.token = r.token AND j.state + 0 = 2 AND j.worker = %(worker)s::text
        FOR UPDATE
    ) j
), moved AS (
    UPDATE holdfast.jobs j SET
        state = 3,
        visible_ms = greatest(j.created_ms, j.not_before_ms),
        finished_ms = m.ms,
        lease_until_ms = 0,
        worker = '',
        result_token = h.token,
        version = j.version + 1
    FROM held h, moment m
    WHERE j.id = h.id
    RETURNING
        j.id, j.token, j.started_ms, j.finished_ms, j.queue, j.priority, j.failures + j.losses + 1 AS attempt,
        h.output, h.summary, h.runtime_ms
), done AS (
    INSERT INTO holdfast.completed (job_id, finished_ms, runtime_ms, summary, output)
    SELECT id, finished_ms, runtime_ms, summary, output FROM moved
), tried AS (
    INSERT INTO holdfast.executions (job_id, token, worker, started_ms, ended_ms, outcome, runtime_ms)
    SELECT id, token, %(worker)s::text, started_ms, finished_ms, 3, runtime_ms FROM moved
), counted AS (
    INSERT INTO holdfast.tallies (queue, state, jobs)
    SELECT m.queue, v.state, sum(v.jobs) FROM moved m, (VALUES (2, -1), (3, 1)) v(state, jobs) GROUP BY 1, 2
)
SELECT id::text, finished_ms, attempt, priority FROM moved;

-- name: mark
-- Requests that a running job stops.
UPDATE holdfast.jobs SET
    cancel_requested = true, cancel_reason = %(reason)s::text, cancel_ms = holdfast.now_ms(), version = version + 1
WHERE id = %(id)s::uuid;

-- name: live
UPDATE holdfast.assignments SET heard_ms = holdfast.now_ms()
WHERE worker = %(worker)s::text AND session = %(session)s::text;

-- name: begin_session
-- A drain request to an earlier session does not apply to the new one.
UPDATE holdfast.assignments SET
    session = %(session)s::text,
    is_draining = is_draining AND session = %(session)s::text,
    heard_ms = holdfast.now_ms()
WHERE worker = %(worker)s::text;

-- name: keep
UPDATE holdfast.jobs SET lease_until_ms = holdfast.now_ms() + %(lease_ms)b::bigint
WHERE state = 2 AND worker = %(worker)s::text AND token = ANY(%(tokens)b::bigint[]);
