-- name: tell
SELECT pg_notify('holdfast_changed', string_agg(n.id, ','))
FROM (SELECT u.id, (row_number() OVER ()) / 200 AS part FROM unnest(%(ids)b::text[]) AS u(id)) n GROUP BY n.part
UNION ALL
SELECT pg_notify('holdfast_due', 'rows') WHERE %(is_due)b::boolean;
