-- name: states
SELECT state, sum(jobs)::bigint FROM holdfast.tallies GROUP BY state;

-- name: queues
-- Counts come from the tallies; delayed jobs and the oldest waiting job are read lane by lane.
WITH RECURSIVE moment AS MATERIALIZED (
    SELECT holdfast.now_ms() AS ms
), lanes AS (
    (
        SELECT priority, queue, route FROM holdfast.jobs WHERE state = 1
        ORDER BY priority, queue, route LIMIT 1
    )
    UNION ALL
    SELECT n.priority, n.queue, n.route FROM lanes l CROSS JOIN LATERAL (
        SELECT j.priority, j.queue, j.route FROM holdfast.jobs j
        WHERE j.state = 1 AND (j.priority, j.queue, j.route) > (l.priority, l.queue, l.route)
        ORDER BY j.priority, j.queue, j.route LIMIT 1
    ) n
), waiting AS (
    SELECT l.queue, sum(h.delayed) AS delayed, min(least(h.oldest_ms, g.oldest_ms)) AS oldest_ms
    FROM lanes l
    CROSS JOIN LATERAL (
        -- Not due yet, or claimed.
        SELECT
            count(*) FILTER (WHERE j.not_before_ms > (SELECT ms FROM moment)) AS delayed,
            min(greatest(j.created_ms, j.not_before_ms))
                FILTER (WHERE j.not_before_ms <= (SELECT ms FROM moment)) AS oldest_ms
        FROM holdfast.jobs j
        WHERE j.state = 1 AND j.priority = l.priority AND j.queue = l.queue AND j.route = l.route
            AND j.visible_ms > (SELECT ms FROM moment)
    ) h
    LEFT JOIN LATERAL (
        SELECT greatest(j.created_ms, j.not_before_ms) AS oldest_ms FROM holdfast.jobs j
        WHERE j.state = 1 AND j.priority = l.priority AND j.queue = l.queue AND j.route = l.route
            AND j.visible_ms <= (SELECT ms FROM moment)
        ORDER BY j.visible_ms, j.number LIMIT 1
    ) g ON true
    GROUP BY l.queue
), typed AS (
    -- Jobs by type. The count of a lane is limited, and the limit is lower if there are many lanes.
    SELECT t.queue, jsonb_object_agg(t.route, t.jobs) AS types FROM (
        SELECT l.queue, l.route, sum(c.jobs)::bigint AS jobs FROM lanes l
        CROSS JOIN LATERAL (
            SELECT count(*) AS jobs FROM (
                SELECT 1 FROM holdfast.jobs j
                WHERE j.state = 1 AND j.priority = l.priority AND j.queue = l.queue AND j.route = l.route
                    AND j.visible_ms <= (SELECT ms FROM moment)
                LIMIT (
                    SELECT greatest(1, least(%(lane_max)s::bigint, %(all_max)s::bigint / greatest(1, count(*))))
                    FROM lanes
                )
            ) counted
        ) c
        GROUP BY l.queue, l.route
        HAVING sum(c.jobs) > 0
    ) t
    GROUP BY t.queue
), counts AS (
    SELECT
        queue,
        coalesce(sum(jobs) FILTER (WHERE state = 1), 0) AS queued,
        coalesce(sum(jobs) FILTER (WHERE state = 2), 0) AS running
    FROM holdfast.tallies WHERE state < 3 GROUP BY queue
    HAVING sum(jobs) <> 0
)
SELECT
    coalesce(c.queue, q.name) AS name,
    coalesce(q.mode, 1),
    coalesce(q.reason, ''),
    greatest(0, coalesce(c.queued, 0) - coalesce(w.delayed, 0))::bigint,
    coalesce(w.delayed, 0)::bigint,
    coalesce(c.running, 0)::bigint,
    greatest(0, coalesce((SELECT ms FROM moment) - w.oldest_ms, 0))::bigint,
    coalesce(y.types, '{}'::jsonb)
FROM counts c
FULL JOIN holdfast.queues q ON q.name = c.queue
LEFT JOIN waiting w ON w.queue = c.queue
LEFT JOIN typed y ON y.queue = c.queue
ORDER BY 1;

-- name: lock_mode
SELECT mode FROM holdfast.queues WHERE name = %(queue)s FOR UPDATE;

-- name: set_mode
INSERT INTO holdfast.queues AS q (name, mode, reason, since_ms)
VALUES (%(queue)s, %(mode)b, %(reason)s, holdfast.now_ms())
ON CONFLICT (name) DO UPDATE SET mode = excluded.mode, reason = excluded.reason, since_ms = excluded.since_ms
WHERE (q.mode, q.reason) IS DISTINCT FROM (excluded.mode, excluded.reason);

-- name: open_queue
DELETE FROM holdfast.queues WHERE name = %(queue)s;

-- name: show_claimed
-- Makes rows visible again that were claimed before their queue was paused. Their tickets were dropped; a ticket that
-- still exists is refused if the row was started by another one.
WITH wanted AS MATERIALIZED (
    SELECT id FROM holdfast.jobs
    WHERE state = 1 AND priority = ANY('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) AND queue = %(queue)s::text
        AND visible_ms > (SELECT holdfast.now_ms()) AND claimed_ms > 0
    ORDER BY id
    FOR UPDATE
)
UPDATE holdfast.jobs j SET visible_ms = greatest(j.created_ms, j.not_before_ms), claimed_ms = 0
FROM wanted w WHERE j.id = w.id;

-- name: writers
-- Transactions that may have read the mode before now, and may still insert jobs: an INSERT takes its lock before it reads.
SELECT l.virtualtransaction FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE d.datname = current_database() AND l.relation = 'holdfast.jobs'::regclass AND l.mode = 'RowExclusiveLock'
    AND l.granted;

-- name: told_due
SELECT pg_notify('holdfast_due', '');

-- name: closed_queues
SELECT count(*) FILTER (WHERE name <> %(queue)s::text) FROM holdfast.queues;

-- name: save_places
-- Notifies the watchers if the routes or queues of the worker are new.
-- The session is written by `begin_session`, and here only into a new row: a coordinator that has not noticed that its
-- worker began a new session elsewhere must not restore the old one, because `lock_place` compares it.
WITH before AS MATERIALIZED (
    SELECT routes, job_queues FROM holdfast.assignments WHERE worker = %(worker)s
), saved AS (
INSERT INTO holdfast.assignments AS a
    (worker, session, routes, job_queues, slots, places, is_draining, heard_ms)
VALUES
    (
        %(worker)s, %(session)s, %(routes)b, %(job_queues)b, %(slots)b, %(places)b, %(is_draining)b,
        holdfast.now_ms() - %(heard_ms_ago)b::bigint
    )
ON CONFLICT (worker) DO UPDATE SET
    routes = excluded.routes,
    job_queues = excluded.job_queues,
    slots = excluded.slots,
    places = excluded.places,
    -- A worker that was asked to drain stays draining, even if its coordinator did not know that yet.
    is_draining = excluded.is_draining OR a.is_draining,
    -- The worker may have updated this itself since its last heartbeat.
    heard_ms = greatest(a.heard_ms, excluded.heard_ms)
WHERE a.session = excluded.session
)
SELECT pg_notify('holdfast_due', '') WHERE NOT EXISTS (
    SELECT FROM before b WHERE b.routes = %(routes)b::text[] AND b.job_queues = %(job_queues)b::text[]
);

-- name: lock_place
-- A session that begins waits for this lock, and then finds that the leases of its worker were taken back.
SELECT session, heard_ms > holdfast.now_ms() - %(silent_ms)b::bigint FROM holdfast.assignments
WHERE worker = %(worker)s FOR UPDATE;

-- name: remove_places
DELETE FROM holdfast.assignments WHERE worker = ANY(%(workers)b::text[]);

-- name: all_places
SELECT
    a.worker, a.session, a.routes, a.job_queues, a.slots, a.places,
    greatest(0, holdfast.now_ms() - a.heard_ms), a.is_draining
FROM holdfast.assignments a ORDER BY a.worker;

-- name: leases
SELECT worker, count(*) FROM holdfast.jobs WHERE state = 2 GROUP BY worker;

-- name: ask_to_drain
UPDATE holdfast.assignments SET is_draining = true WHERE worker = %(worker)s RETURNING worker;

-- name: about_waiting
-- The facts that explain why a job has not ended.
SELECT
    j.claimed_ms, j.visible_ms, j.lease_until_ms, holdfast.now_ms(),
    q.mode, q.reason, q.since_ms
FROM holdfast.jobs j LEFT JOIN holdfast.queues q ON q.name = j.queue
WHERE j.id = %(id)s::uuid;
