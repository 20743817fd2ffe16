-- name: append
WITH leader AS MATERIALIZED (
    SELECT l.segment FROM holdfast.leaders l WHERE l.shard = %(shard)s::bigint AND l.epoch = %(epoch)s::bigint FOR SHARE
), written AS (
    INSERT INTO holdfast.frames
        (shard, segment, first_position, count, epoch, digest, digest_version, link, checksum, body)
    SELECT
        %(shard)s::bigint, leader.segment, %(first_position)s::bigint, %(count)s::bigint, %(epoch)s::bigint,
        %(digest)s::bigint, %(digest_version)s::bigint, %(link)s::bigint, %(checksum)s::bigint, %(body)s::bytea
    FROM leader WHERE leader.segment <= %(first_position)s::bigint
    RETURNING 1
)
SELECT CASE
    WHEN EXISTS (SELECT FROM written) THEN 'written' WHEN EXISTS (SELECT FROM leader) THEN 'taken' ELSE 'fenced' END

-- name: append_inbox
WITH leader AS MATERIALIZED (
    SELECT l.segment FROM holdfast.leaders l WHERE l.shard = %(shard)s::bigint AND l.epoch = %(epoch)s::bigint FOR SHARE
), gone AS (
    DELETE FROM holdfast.inbox i USING leader
    WHERE i.shard = %(shard)s::bigint AND i.id = ANY (%(inbox)s::bigint[])
        AND leader.segment <= %(first_position)s::bigint
    RETURNING 1
), complete AS MATERIALIZED (
    SELECT leader.segment FROM leader WHERE leader.segment <= %(first_position)s::bigint
        AND holdfast.require_rows((SELECT count(*) FROM gone), cardinality(%(inbox)s::bigint[]))
), written AS (
    INSERT INTO holdfast.frames
        (shard, segment, first_position, count, epoch, digest, digest_version, link, checksum, body)
    SELECT
        %(shard)s::bigint, complete.segment, %(first_position)s::bigint, %(count)s::bigint, %(epoch)s::bigint,
        %(digest)s::bigint, %(digest_version)s::bigint, %(link)s::bigint, %(checksum)s::bigint, %(body)s::bytea
    FROM complete
    RETURNING 1
)
SELECT CASE
    WHEN EXISTS (SELECT FROM written) THEN 'written' WHEN EXISTS (SELECT FROM leader) THEN 'taken' ELSE 'fenced' END

-- name: find
SELECT f.epoch, f.checksum FROM holdfast.frames f
WHERE f.shard = %(shard)s::bigint AND f.first_position = %(first_position)s::bigint

-- name: confirm
UPDATE holdfast.leaders SET confirms = confirms + 1
WHERE shard = %(shard)s::bigint AND epoch = %(epoch)s::bigint RETURNING 1

-- name: open_segment
SELECT holdfast.open_segment(
    %(shard)s::integer, %(epoch)s::bigint, %(first_position)s::bigint, %(created_ms)s::bigint)

-- name: remove_segments
SELECT holdfast.remove_segments(%(shard)s::integer, %(epoch)s::bigint, %(names)s::text[])

-- name: segments
SELECT
    t.name, s.first_position, coalesce(s.last_position, holdfast.end_position(s.shard, s.first_position)), s.epoch,
    coalesce(s.bytes, pg_total_relation_size(format('holdfast.%%I', t.name)::regclass)), s.last_position IS NOT NULL,
    s.created_ms
FROM holdfast.segments s CROSS JOIN LATERAL holdfast.segment_table(s.shard, s.first_position) AS t (name)
WHERE s.shard = %(shard)s::bigint AND NOT s.is_removed ORDER BY s.first_position

-- name: bounds
SELECT s.first_position, s.last_position FROM holdfast.segments s
WHERE s.shard = %(shard)s::bigint AND NOT s.is_removed ORDER BY s.first_position

-- name: frames
-- The frame that contains the position past `after`, and the frames behind it, up to the first beyond the size.
SELECT w.first_position, w.count, w.epoch, w.digest, w.digest_version, w.link, w.checksum, w.body FROM (
    SELECT f.*, sum(octet_length(f.body)) OVER (ORDER BY f.first_position) - octet_length(f.body) AS bytes_before
    FROM (
        SELECT * FROM holdfast.frames
        WHERE shard = %(shard)s::bigint AND segment = %(segment)s::bigint AND first_position + count - 1 > %(after)s::bigint
            AND first_position >= coalesce((
                SELECT b.first_position FROM holdfast.frames b
                WHERE b.shard = %(shard)s::bigint AND b.segment = %(segment)s::bigint
                    AND b.first_position <= %(after)s::bigint + 1
                ORDER BY b.first_position DESC LIMIT 1), 0)
        ORDER BY first_position LIMIT 1000
    ) f
) w WHERE w.bytes_before < %(bytes_max)s::bigint ORDER BY w.first_position

-- name: end_position
SELECT holdfast.end_position(l.shard, l.segment), l.epoch FROM holdfast.leaders l WHERE l.shard = %(shard)s::bigint
