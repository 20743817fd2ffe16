-- name: claim
-- Skips from lane to lane (priority, queue, route) in the index: rows that no worker could take cost nothing.
-- Reads more rows than wanted, so that concurrent watchers find different ones.
WITH RECURSIVE moment AS MATERIALIZED (
    SELECT holdfast.now_ms() AS ms, set_config('synchronous_commit', 'off', true)
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
), open_lanes AS MATERIALIZED (
    SELECT l.* FROM lanes l
    WHERE EXISTS (
        SELECT FROM unnest(%(routes)b::text[], %(queues)b::text[]) AS k(route, queue)
        WHERE k.route = l.route AND (k.queue = '' OR k.queue = l.queue)
    ) AND NOT EXISTS (
        SELECT FROM unnest(%(full_queues)b::text[], %(full_routes)b::text[], %(full_highs)b::boolean[])
            AS f(queue, route, is_high)
        WHERE f.queue = l.queue AND f.route = l.route AND f.is_high = (l.priority > %(usual)b::bigint)
    ) AND NOT EXISTS (SELECT FROM holdfast.queues q WHERE q.name = l.queue AND q.mode = 2)
), lost AS MATERIALIZED (
    -- Rows whose tickets were lost: by visible_ms they come after all rows that were never claimed, but their due time is
    -- earlier. So they are read separately.
    SELECT j.id, j.visible_ms, j.number, j.priority, j.queue, j.route, greatest(j.created_ms, j.not_before_ms) AS due_ms
    FROM holdfast.jobs j
    WHERE j.state = 1 AND j.claimed_ms > 0 AND j.visible_ms <= (SELECT ms FROM moment)
    ORDER BY j.visible_ms, j.number LIMIT 4 * %(count)b::bigint
), heads AS MATERIALIZED (
    SELECT h.id FROM (
        SELECT h.id, h.visible_ms, h.number, l.priority, h.due_ms FROM open_lanes l CROSS JOIN LATERAL (
            SELECT j.id, j.visible_ms, j.number, greatest(j.created_ms, j.not_before_ms) AS due_ms FROM holdfast.jobs j
            WHERE j.state = 1 AND j.priority = l.priority AND j.queue = l.queue AND j.route = l.route
                AND j.visible_ms <= (SELECT ms FROM moment)
            ORDER BY j.visible_ms, j.number LIMIT 4 * %(count)b::bigint
        ) h
        UNION
        SELECT k.id, k.visible_ms, k.number, k.priority, k.due_ms FROM lost k JOIN open_lanes l USING (priority, queue, route)
    ) h
    -- Aging: waiting time counts as priority, so that jobs of low priority do not starve under overload.
    ORDER BY h.due_ms - h.priority * %(aging_ms)b::bigint, h.number LIMIT 4 * %(count)b::bigint
), chosen AS MATERIALIZED (
    -- One by one, in the order of the heads: no more rows are read and locked than wanted.
    SELECT f.id FROM heads h CROSS JOIN LATERAL (
        SELECT j.id FROM holdfast.jobs j
        WHERE j.id = h.id AND j.state + 0 = 1 AND j.visible_ms <= (SELECT ms FROM moment)
        FOR UPDATE SKIP LOCKED
    ) f
    LIMIT %(count)b::bigint
), claimed AS (
    UPDATE holdfast.jobs j SET
        visible_ms = m.ms + %(visibility_ms)b::bigint, claimed_ms = m.ms, deliveries = j.deliveries + 1
    FROM chosen c, moment m
    WHERE j.id = c.id
    RETURNING j.id, j.route, j.queue, j.priority, j.number, j.deliveries,
        greatest(j.created_ms, j.not_before_ms) AS due_ms, m.ms
)
SELECT id::text, route, queue, priority, number, deliveries, due_ms, greatest(0, ms - due_ms) FROM claimed
ORDER BY priority DESC, due_ms, number;

-- name: unclaim
WITH moment AS MATERIALIZED (
    SELECT holdfast.now_ms() AS ms, set_config('synchronous_commit', 'off', true)
), wanted AS MATERIALIZED (
    SELECT j.id FROM holdfast.jobs j
    WHERE j.id = ANY(%(ids)b::text[]::uuid[]) AND j.state + 0 = 1 AND j.visible_ms > (SELECT ms FROM moment)
        AND j.claimed_ms > 0
    ORDER BY j.id
    FOR UPDATE
), freed AS (
    UPDATE holdfast.jobs j SET
        visible_ms = CASE
            WHEN %(delay_ms)b::bigint > 0 THEN greatest(m.ms + %(delay_ms)b::bigint, j.not_before_ms)
            ELSE greatest(j.created_ms, j.not_before_ms)
        END,
        claimed_ms = 0
    FROM wanted w, moment m WHERE j.id = w.id
    RETURNING 1
)
SELECT pg_notify('holdfast_due', 'rows') WHERE EXISTS (SELECT FROM freed);

-- name: next_visible
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
)
SELECT min(h.visible_ms) - (SELECT ms FROM moment) FROM lanes l CROSS JOIN LATERAL (
    SELECT j.visible_ms FROM holdfast.jobs j
    WHERE j.state = 1 AND j.priority = l.priority AND j.queue = l.queue AND j.route = l.route
        AND j.visible_ms > (SELECT ms FROM moment)
    ORDER BY j.visible_ms LIMIT 1
) h;

-- name: cut_off
-- The server waits for a client that stalls inside a batch without a limit, and inside a transaction for a while, and it
-- keeps all locks. Terminates such connections, if their application name is one of Holdfast's.
SELECT count(*) FROM (
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND starts_with(application_name, 'holdfast')
        AND state IN ('active', 'idle in transaction', 'idle in transaction (aborted)') AND wait_event = 'ClientRead'
        AND xact_start IS NOT NULL
        AND state_change < clock_timestamp() - make_interval(secs => %(patience_ms)b::bigint / 1000.0)
) c;

-- name: retire
-- Deletes jobs that ended long ago, with their results and attempts; FAILED jobs have a retention time of their own.
WITH ended AS MATERIALIZED (
    SELECT id FROM holdfast.jobs
    WHERE state > 2 AND state <> 4 AND finished_ms <= (SELECT holdfast.now_ms()) - %(retain_ms)b::bigint
    ORDER BY finished_ms LIMIT %(count)b::bigint
    FOR UPDATE SKIP LOCKED
), failed AS MATERIALIZED (
    SELECT id FROM holdfast.jobs
    WHERE state = 4 AND finished_ms <= (SELECT holdfast.now_ms()) - %(retain_failed_ms)b::bigint
    ORDER BY finished_ms LIMIT %(count)b::bigint - (SELECT count(*) FROM ended)
    FOR UPDATE SKIP LOCKED
), gone AS MATERIALIZED (
    SELECT id FROM ended UNION ALL SELECT id FROM failed
), results AS (
    DELETE FROM holdfast.completed WHERE job_id IN (SELECT id FROM gone)
), failures AS (
    DELETE FROM holdfast.failed WHERE job_id IN (SELECT id FROM gone)
), attempts AS (
    DELETE FROM holdfast.executions WHERE job_id IN (SELECT id FROM gone)
), deleted AS (
    DELETE FROM holdfast.jobs WHERE id IN (SELECT id FROM gone) RETURNING queue, state
), counted AS (
    INSERT INTO holdfast.tallies (queue, state, jobs) SELECT queue, state, -count(*) FROM deleted GROUP BY 1, 2
)
SELECT count(*) FROM deleted;

-- name: count_up
-- Merges many tally rows into one for each queue and state. If another process does this now, it does nothing.
WITH mine AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(7162950771104343924) AS is_mine
    WHERE %(kept)b::bigint < (SELECT count(*) FROM (SELECT FROM holdfast.tallies LIMIT %(kept)b::bigint + 1) t)
), gone AS (
    DELETE FROM holdfast.tallies
    WHERE (SELECT is_mine FROM mine) AND ctid = ANY(ARRAY(SELECT ctid FROM holdfast.tallies LIMIT 20000))
    RETURNING queue, state, jobs
), kept AS (
    INSERT INTO holdfast.tallies (queue, state, jobs)
    SELECT queue, state, sum(jobs) FROM gone GROUP BY 1, 2 HAVING sum(jobs) <> 0
)
SELECT count(*) FROM gone;
