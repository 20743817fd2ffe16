-- The cluster, its nodes and the leaders of its shards. Every instant is one of this server's clock.

CREATE FUNCTION holdfast.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

CREATE FUNCTION holdfast.milliseconds(span interval) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT floor(extract(epoch FROM span) * 1000)::bigint $$;

-- One row, written when the cluster is created.
CREATE TABLE holdfast.cluster (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    cluster_id bytea NOT NULL CHECK (octet_length(cluster_id) = 16),
    shards integer NOT NULL CHECK (shards BETWEEN 1 AND 1024),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The owner of a job depends on the number of shards: another number would lose jobs.
CREATE FUNCTION holdfast.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the id and the number of shards of a cluster never change' USING ERRCODE = 'HF002';
END $$;

CREATE TRIGGER cluster_is_fixed BEFORE UPDATE OR DELETE ON holdfast.cluster
FOR EACH ROW EXECUTE FUNCTION holdfast.refuse_change();

-- One row for each shard. An append locks it FOR SHARE, a takeover updates it.
CREATE TABLE holdfast.leaders (
    shard integer PRIMARY KEY,
    -- 0 until the shard has its first leader.
    epoch bigint NOT NULL DEFAULT 0,
    holder text NOT NULL DEFAULT '',
    incarnation text NOT NULL DEFAULT '',
    lease_until timestamptz NOT NULL DEFAULT 'epoch',
    successor text NOT NULL DEFAULT '',
    -- Counts the commits that only confirm earlier ones.
    confirms bigint NOT NULL DEFAULT 0,
    -- The first position of the newest segment, which takes the appends.
    segment bigint NOT NULL
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE holdfast.nodes (
    name text PRIMARY KEY,
    incarnation text NOT NULL,
    record jsonb NOT NULL,
    beat_at timestamptz NOT NULL
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
