-- name: positions
SELECT s.position FROM holdfast.snapshots s WHERE s.shard = %(shard)s::bigint ORDER BY s.position

-- name: header
SELECT
    s.digest_version, s.cluster_id, s.position, s.link, s.log_time_ms, s.digest,
    s.upload, s.header_checksum, s.checksum, s.chunks, s.bytes
FROM holdfast.snapshots s WHERE s.shard = %(shard)s::bigint AND s.position = %(position)s::bigint

-- name: chunk
SELECT c.checksum, c.body FROM holdfast.snapshot_chunks c
WHERE c.upload = %(upload)s::uuid AND c.number = %(number)s::bigint

-- name: begin
-- Also deletes uploads whose writer has ended.
WITH abandoned AS (
    DELETE FROM holdfast.snapshot_uploads u
    WHERE u.shard = %(shard)s::bigint AND u.touched_at < clock_timestamp() - interval '1 hour' RETURNING u.upload
), gone AS (
    DELETE FROM holdfast.snapshot_chunks c USING abandoned WHERE c.upload = abandoned.upload
)
INSERT INTO holdfast.snapshot_uploads (upload, shard) VALUES (%(upload)s::uuid, %(shard)s::bigint)

-- name: add
WITH touched AS (
    UPDATE holdfast.snapshot_uploads u SET touched_at = clock_timestamp() WHERE u.upload = %(upload)s::uuid
    RETURNING u.upload
)
INSERT INTO holdfast.snapshot_chunks (upload, number, checksum, body)
SELECT touched.upload, %(number)s::bigint, %(checksum)s::bigint, %(body)s::bytea FROM touched

-- name: finish
SELECT holdfast.finish_snapshot(%(upload)s::uuid, ROW(
    %(shard)s::integer, %(position)s::bigint, %(upload)s::uuid, %(cluster_id)s::bytea, %(digest_version)s::integer,
    %(link)s::bigint, %(log_time_ms)s::bigint, %(digest)s::bigint, %(header_checksum)s::bigint, %(checksum)s::bigint,
    %(chunks)s::integer, %(bytes)s::bigint, clock_timestamp())::holdfast.snapshots)

-- name: give_up
WITH gone AS (DELETE FROM holdfast.snapshot_uploads WHERE upload = %(upload)s::uuid)
DELETE FROM holdfast.snapshot_chunks WHERE upload = %(upload)s::uuid

-- name: remove
SELECT holdfast.remove_snapshot(%(shard)s::integer, %(position)s::bigint)

-- name: pin
-- The lock orders it with the removal of segments, which sees the pin or comes first.
WITH leader AS MATERIALIZED (
    SELECT l.shard FROM holdfast.leaders l WHERE l.shard = %(shard)s::bigint FOR SHARE
)
INSERT INTO holdfast.pins (pin, shard, position, expires_at)
SELECT %(pin)s::uuid, leader.shard, %(position)s::bigint, clock_timestamp() + %(lasts_ms)s::bigint * interval '1 ms'
FROM leader

-- name: renew_pin
UPDATE holdfast.pins SET expires_at = clock_timestamp() + %(lasts_ms)s::bigint * interval '1 ms'
WHERE pin = %(pin)s::uuid

-- name: unpin
DELETE FROM holdfast.pins WHERE pin = %(pin)s::uuid
