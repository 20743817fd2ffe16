-- name: waiting
SELECT
    w.id, w.submitted_ms, w.type, w.queue, w.priority, w.max_attempts, w.max_losses, w.timeout_ms, w.backoff,
    w.job_id::text, w.payload, w.not_before_ms, w.request_id, w.labels::text, w.headers::text, w.unique_key
FROM (
    SELECT i.*, sum(octet_length(i.payload)) OVER (ORDER BY i.id) - octet_length(i.payload) AS bytes_before
    FROM (
        SELECT * FROM holdfast.inbox
        WHERE shard = %(shard)s::bigint AND id <> ALL (%(besides)s::bigint[]) ORDER BY id LIMIT %(rows_max)s::bigint
    ) i
) w WHERE w.bytes_before < %(bytes_max)s::bigint ORDER BY w.id

-- name: reject
WITH leader AS MATERIALIZED (
    SELECT l.shard FROM holdfast.leaders l WHERE l.shard = %(shard)s::bigint AND l.epoch = %(epoch)s::bigint FOR SHARE
), refused AS (
    SELECT r.id, r.reason, r.message
    FROM unnest(%(rows)s::bigint[], %(reasons)s::text[], %(messages)s::text[]) AS r (id, reason, message)
), gone AS (
    DELETE FROM holdfast.inbox i USING leader
    WHERE i.shard = leader.shard AND i.id = ANY (%(rows)s::bigint[]) RETURNING i.*
), moved AS (
    INSERT INTO holdfast.rejected SELECT gone.*, refused.reason, refused.message FROM gone JOIN refused USING (id)
)
SELECT CASE WHEN EXISTS (SELECT FROM leader) THEN 'written' ELSE 'fenced' END
