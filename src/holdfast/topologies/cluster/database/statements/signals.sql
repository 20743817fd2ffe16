-- name: announce
SELECT pg_notify('holdfast_frames', s.shard::text) FROM unnest(%(shards)s::integer[]) AS s (shard)

-- name: ping
SELECT 1
