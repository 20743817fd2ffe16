-- name: insert_plain
-- The common case: new jobs of one template that have only a payload. If one of them exists already, the statement fails
-- and inserts none. They are numbered in the order of the arrays, because nothing here reorders them.
WITH moment AS MATERIALIZED (
    SELECT holdfast.now_ms() AS ms
), made AS (
    INSERT INTO holdfast.jobs (
        id, created_ms, visible_ms, payload,
        type, queue, route, priority, max_attempts, max_losses, timeout_ms,
        backoff_kind, backoff_base_ms, backoff_max_ms, simulated
    )
    SELECT
        d.id, m.ms, m.ms, d.payload,
        %(type)s, %(queue)s, %(route)s, %(priority)s, %(attempts)s, %(losses)s, %(timeout)s,
        %(kind)s, %(base)s, %(cap)s, %(simulated)s
    FROM moment m CROSS JOIN unnest(%(ids)b::uuid[], %(payloads)b::bytea[]) AS d(id, payload)
    WHERE NOT EXISTS (SELECT FROM holdfast.queues q WHERE q.name = %(queue)s AND q.mode = 3)
    RETURNING 1
), counted AS (
    INSERT INTO holdfast.tallies (queue, state, jobs) SELECT %(queue)s, 1, count(*) FROM made HAVING count(*) > 0
)
SELECT (SELECT ms FROM moment), count(*) FROM made;

-- name: insert
-- One statement, one commit. A job that is not inserted exists already, or its queue is draining.
WITH moment AS MATERIALIZED (
    SELECT holdfast.now_ms() AS ms
), made AS (
    INSERT INTO holdfast.jobs (
        id, created_ms, not_before_ms, visible_ms, payload, extra, labels, request_id, unique_key,
        type, queue, route, priority, max_attempts, max_losses, timeout_ms,
        backoff_kind, backoff_base_ms, backoff_max_ms, simulated
    )
    SELECT
        d.id, m.ms, due.ms, greatest(m.ms, due.ms), d.payload, d.extra, d.labels::jsonb, d.request_id, d.unique_key,
        t.type, t.queue, CASE WHEN t.simulated THEN 'sim' ELSE t.type END,
        t.priority, t.max_attempts, t.max_losses, t.timeout_ms,
        t.backoff_kind, t.backoff_base_ms, t.backoff_max_ms, t.simulated
    FROM unnest(
        %(ids)b::uuid[], %(templates)b::bigint[], %(payloads)b::bytea[],
        %(not_before)b::bigint[], %(delays)b::bigint[],
        %(extras)b::bytea[], %(labels)b::text[], %(request_ids)b::text[], %(unique_keys)b::text[]
    ) WITH ORDINALITY AS d(
        id, template, payload, not_before_ms, delay_ms, extra, labels, request_id, unique_key, place
    )
    JOIN unnest(
        %(types)b::text[], %(queues)b::text[], %(priorities)b::bigint[], %(attempts)b::bigint[], %(losses)b::bigint[],
        %(timeouts)b::bigint[], %(kinds)b::bigint[], %(bases)b::bigint[], %(caps)b::bigint[], %(simulated)b::boolean[]
    ) WITH ORDINALITY AS t(
        type, queue, priority, max_attempts, max_losses,
        timeout_ms, backoff_kind, backoff_base_ms, backoff_max_ms, simulated, place
    ) ON t.place = coalesce(d.template, 0) + 1
    CROSS JOIN moment m
    CROSS JOIN LATERAL (
        SELECT greatest(
            coalesce(d.not_before_ms, 0), CASE WHEN d.delay_ms > 0 THEN m.ms + d.delay_ms ELSE 0 END
        ) AS ms
    ) due
    WHERE NOT EXISTS (SELECT FROM holdfast.queues q WHERE q.name = t.queue AND q.mode = 3)
    ORDER BY d.place
    ON CONFLICT DO NOTHING
    RETURNING id, queue
), counted AS (
    INSERT INTO holdfast.tallies (queue, state, jobs) SELECT queue, 1, count(*) FROM made GROUP BY queue
)
-- Ids are returned only if some jobs were not inserted.
SELECT
    (SELECT ms FROM moment), count(*),
    CASE WHEN count(*) < cardinality(%(ids)b::uuid[]) THEN array_agg(id::text) END
FROM made;

-- name: known
-- The existing jobs that drafts may conflict with.
SELECT
    j.id::text, j.type, j.queue, j.priority, j.max_attempts, j.max_losses, j.timeout_ms,
    j.backoff_kind, j.backoff_base_ms, j.backoff_max_ms, j.simulated,
    j.state, j.number, j.created_ms, j.extra, j.payload
FROM holdfast.jobs j
WHERE j.id IN (
    SELECT id FROM holdfast.jobs WHERE id = ANY(%(ids)b::text[]::uuid[])
    UNION ALL
    SELECT id FROM holdfast.jobs WHERE request_id = ANY(%(request_ids)b::text[])
    UNION ALL
    SELECT u.id FROM unnest(%(types)b::text[], %(unique_keys)b::text[]) AS k(type, unique_key)
    JOIN holdfast.jobs u ON u.type = k.type AND u.unique_key = k.unique_key AND u.state < 3
);

-- name: draining
SELECT name FROM holdfast.queues WHERE mode = 3;

-- name: get
SELECT * FROM holdfast.job_views WHERE id = %(id)s::uuid;

-- name: payload
SELECT payload FROM holdfast.jobs WHERE id = %(id)s::uuid;

-- name: result
SELECT
    j.state,
    coalesce(c.output, f.output, ''::bytea),
    coalesce(c.summary, f.summary, ''),
    coalesce(f.failure_reason, ''),
    coalesce(c.runtime_ms, f.runtime_ms, 0)
FROM holdfast.jobs j
LEFT JOIN holdfast.completed c ON c.job_id = j.id
LEFT JOIN holdfast.failed f ON f.job_id = j.id
WHERE j.id = %(id)s::uuid;

-- name: history
-- One row for each attempt of the job, with the job's columns.
SELECT
    j.id::text, j.type, j.queue, j.priority, j.created_ms, j.state, j.token, j.worker, j.started_ms, j.finished_ms,
    j.cancel_ms, j.cancel_reason, coalesce(c.summary, f.summary, ''),
    e.token, e.worker, e.started_ms, e.ended_ms, e.outcome, e.reason, e.summary, e.detail, e.loss
FROM holdfast.jobs j
LEFT JOIN holdfast.completed c ON c.job_id = j.id
LEFT JOIN holdfast.failed f ON f.job_id = j.id
LEFT JOIN holdfast.executions e ON e.job_id = j.id
WHERE j.id = %(id)s::uuid
ORDER BY e.token;

-- name: ended
SELECT
    v.*, coalesce(c.output, f.output, ''::bytea), coalesce(c.summary, f.summary, ''),
    coalesce(c.runtime_ms, f.runtime_ms, 0)
FROM holdfast.job_views v
LEFT JOIN holdfast.completed c ON c.job_id = v.id
LEFT JOIN holdfast.failed f ON f.job_id = v.id
WHERE v.id = ANY(%(ids)b::text[]::uuid[]) AND v.state + 0 > 2;

-- name: versions
SELECT id::text, version FROM holdfast.jobs WHERE id = ANY(%(ids)b::text[]::uuid[]);

-- name: page_newest
SELECT v.* FROM (
    SELECT p.id, p.created_ms
    FROM unnest(%(states)b::bigint[]) AS s(state)
    CROSS JOIN LATERAL (
        SELECT j.id, j.created_ms FROM holdfast.jobs j WHERE j.state = s.state
        ORDER BY j.created_ms DESC, j.id LIMIT %(end)b::bigint
    ) p
    ORDER BY p.created_ms DESC, p.id OFFSET %(offset)b::bigint LIMIT %(size)b::bigint
) p JOIN holdfast.job_views v ON v.id = p.id
ORDER BY p.created_ms DESC, p.id;

-- name: page_oldest
SELECT v.* FROM (
    SELECT p.id, p.created_ms
    FROM unnest(%(states)b::bigint[]) AS s(state)
    CROSS JOIN LATERAL (
        SELECT j.id, j.created_ms FROM holdfast.jobs j WHERE j.state = s.state
        ORDER BY j.created_ms, j.id LIMIT %(end)b::bigint
    ) p
    ORDER BY p.created_ms, p.id OFFSET %(offset)b::bigint LIMIT %(size)b::bigint
) p JOIN holdfast.job_views v ON v.id = p.id
ORDER BY p.created_ms, p.id;

-- name: scan_newest
-- Reads a bounded number of the next jobs in order, and returns for each whether it matches.
SELECT p.id::text, p.created_ms, p.is_match
FROM unnest(%(states)b::bigint[]) AS s(state)
CROSS JOIN LATERAL (
    SELECT
        j.id, j.created_ms,
        (%(queue)s::text = '' OR j.queue = %(queue)s::text)
        AND (%(type)s::text = '' OR j.type = %(type)s::text)
        AND (%(labels)s::text IS NULL OR j.labels @> %(labels)s::text::jsonb) AS is_match
    FROM holdfast.jobs j
    WHERE j.state = s.state
        AND j.created_ms >= %(from)b::bigint AND j.created_ms < %(before)b::bigint
        AND j.created_ms <= %(at)b::bigint
        AND (j.created_ms < %(at)b::bigint OR j.id > %(after)s::uuid)
    ORDER BY j.created_ms DESC, j.id LIMIT %(looks)b::bigint
) p
ORDER BY p.created_ms DESC, p.id LIMIT %(looks)b::bigint;

-- name: scan_oldest
SELECT p.id::text, p.created_ms, p.is_match
FROM unnest(%(states)b::bigint[]) AS s(state)
CROSS JOIN LATERAL (
    SELECT
        j.id, j.created_ms,
        (%(queue)s::text = '' OR j.queue = %(queue)s::text)
        AND (%(type)s::text = '' OR j.type = %(type)s::text)
        AND (%(labels)s::text IS NULL OR j.labels @> %(labels)s::text::jsonb) AS is_match
    FROM holdfast.jobs j
    WHERE j.state = s.state
        AND j.created_ms >= %(from)b::bigint AND j.created_ms < %(before)b::bigint
        AND j.created_ms >= %(at)b::bigint
        AND (j.created_ms > %(at)b::bigint OR j.id > %(after)s::uuid)
    ORDER BY j.created_ms, j.id LIMIT %(looks)b::bigint
) p
ORDER BY p.created_ms, p.id LIMIT %(looks)b::bigint;

-- name: views
SELECT * FROM holdfast.job_views WHERE id = ANY(%(ids)b::text[]::uuid[]);
