-- Beats, takeovers and handovers: each is one call.

-- All nodes and shards at one instant.
CREATE FUNCTION holdfast.cluster_view() RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'now_ms', holdfast.now_ms(),
        'nodes', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                'record', n.record,
                'silent_ms', holdfast.milliseconds(clock_timestamp() - n.beat_at)
            ) ORDER BY n.name), '[]') FROM holdfast.nodes n
        ),
        'shards', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                'shard', l.shard,
                'epoch', l.epoch,
                'holder', l.holder,
                'incarnation', l.incarnation,
                'remaining_ms', holdfast.milliseconds(l.lease_until - clock_timestamp()),
                'successor', l.successor,
                'end_position', holdfast.end_position(l.shard, l.segment)
            ) ORDER BY l.shard), '[]') FROM holdfast.leaders l
        )
    )
$$;

-- Registers a node or renews its entry, renews the leases of the epochs that it leads, and returns everything.
CREATE FUNCTION holdfast.beat(
    by_name text, by_incarnation text, by_record jsonb, of_shards integer[], of_epochs bigint[], lease interval
) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.nodes AS n (name, incarnation, record, beat_at)
    VALUES (by_name, by_incarnation, by_record, clock_timestamp())
    ON CONFLICT (name) DO UPDATE
    SET incarnation = excluded.incarnation, record = excluded.record, beat_at = clock_timestamp()
    WHERE n.incarnation = excluded.incarnation OR n.beat_at <= clock_timestamp() - lease;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another process is the node %', by_name USING ERRCODE = 'HF001';
    END IF;
    UPDATE holdfast.leaders l SET lease_until = clock_timestamp() + lease
    FROM unnest(of_shards, of_epochs) AS held (shard, epoch)
    WHERE l.shard = held.shard AND l.epoch = held.epoch AND l.lease_until > clock_timestamp();
    RETURN holdfast.cluster_view();
END $$;

-- The server waits without a limit for a client that was stopped inside a batch, and keeps the locks of its transaction.
CREATE FUNCTION holdfast.end_stalled(patience interval) RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.usename = current_user AND starts_with(a.application_name, 'holdfast')
        AND a.state IN ('active', 'idle in transaction', 'idle in transaction (aborted)')
        AND a.wait_event = 'ClientRead' AND a.xact_start IS NOT NULL AND a.state_change < clock_timestamp() - patience
$$;

-- Returns the new epoch; NULL, without a change, if another epoch leads or its lease has not ended.
CREATE FUNCTION holdfast.take(
    of_shard integer, seen_epoch bigint, by_name text, by_incarnation text, lease interval
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    taken bigint;
BEGIN
    PERFORM holdfast.end_stalled(interval '2 s');
    UPDATE holdfast.leaders l SET
        epoch = l.epoch + 1, holder = by_name, incarnation = by_incarnation,
        lease_until = clock_timestamp() + lease, successor = ''
    WHERE l.shard = of_shard AND l.epoch = seen_epoch AND l.lease_until <= clock_timestamp()
    RETURNING l.epoch INTO taken;
    IF taken IS NOT NULL THEN
        PERFORM pg_notify('holdfast_leaders', of_shard::text);
    END IF;
    RETURN taken;
END $$;

CREATE FUNCTION holdfast.hand_over(of_shard integer, by_epoch bigint, to_name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.leaders l SET lease_until = least(l.lease_until, clock_timestamp()), successor = to_name
    WHERE l.shard = of_shard AND l.epoch = by_epoch;
    IF FOUND THEN
        PERFORM pg_notify('holdfast_leaders', of_shard::text);
        RETURN true;
    END IF;
    RETURN false;
END $$;
