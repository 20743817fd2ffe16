-- name: identity
SELECT c.cluster_id, c.shards FROM holdfast.cluster c

-- name: create
SELECT holdfast.create_cluster(%(cluster_id)s::bytea, %(shards)s::integer)
