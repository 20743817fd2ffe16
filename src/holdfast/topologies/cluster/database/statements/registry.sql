-- name: beat
SELECT holdfast.beat(
    %(name)s::text, %(incarnation)s::text, %(record)s::jsonb, %(shards)s::integer[], %(epochs)s::bigint[],
    %(lease_ms)s::bigint * interval '1 ms')::text

-- name: take
SELECT holdfast.take(
    %(shard)s::integer, %(seen_epoch)s::bigint, %(name)s::text, %(incarnation)s::text,
    %(lease_ms)s::bigint * interval '1 ms')

-- name: hand_over
SELECT holdfast.hand_over(%(shard)s::integer, %(epoch)s::bigint, %(successor)s::text)

-- name: leave
DELETE FROM holdfast.nodes WHERE name = %(name)s::text AND incarnation = %(incarnation)s::text
