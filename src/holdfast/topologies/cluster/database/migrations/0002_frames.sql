-- The journals: one row for each frame. A segment is a partition, so that its removal drops a table.

CREATE TABLE holdfast.frames (
    shard integer NOT NULL,
    -- The first position of the segment.
    segment bigint NOT NULL,
    first_position bigint NOT NULL,
    count integer NOT NULL,
    epoch bigint NOT NULL,
    -- The bits of an unsigned number.
    digest bigint NOT NULL,
    digest_version integer NOT NULL,
    link bigint NOT NULL,
    checksum bigint NOT NULL,
    body bytea NOT NULL,
    -- The key of a partitioned table contains the columns of its partitions. `leaders.segment` keeps positions unique:
    -- appends go only into the newest segment, and `open_segment` opens none below a frame.
    PRIMARY KEY (shard, first_position, segment)
) PARTITION BY LIST (shard);
-- Compression costs the server more time than it saves bytes.
ALTER TABLE holdfast.frames ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE holdfast.segments (
    shard integer NOT NULL,
    first_position bigint NOT NULL,
    -- NULL while the segment takes appends.
    last_position bigint,
    bytes bigint,
    epoch bigint NOT NULL,
    created_ms bigint NOT NULL,
    -- Removed for all readers; the partition is dropped as soon as no statement uses the shard's frames.
    is_removed boolean NOT NULL DEFAULT false,
    PRIMARY KEY (shard, first_position)
);

-- Readers that need the frames from a position on.
CREATE TABLE holdfast.pins (
    pin uuid PRIMARY KEY,
    shard integer NOT NULL,
    position bigint NOT NULL,
    expires_at timestamptz NOT NULL
);

CREATE TABLE holdfast.snapshots (
    shard integer NOT NULL,
    position bigint NOT NULL,
    upload uuid NOT NULL,
    cluster_id bytea NOT NULL,
    digest_version integer NOT NULL,
    link bigint NOT NULL,
    log_time_ms bigint NOT NULL,
    digest bigint NOT NULL,
    -- Of the fields above, and of the checksums and sizes of all chunks.
    header_checksum bigint NOT NULL,
    checksum bigint NOT NULL,
    chunks integer NOT NULL,
    bytes bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard, position)
);

-- The chunks of an upload become a snapshot with the row in `snapshots`.
CREATE TABLE holdfast.snapshot_uploads (
    upload uuid PRIMARY KEY,
    shard integer NOT NULL,
    touched_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE holdfast.snapshot_chunks (
    upload uuid NOT NULL,
    number integer NOT NULL,
    checksum bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (upload, number)
);
ALTER TABLE holdfast.snapshot_chunks ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE FUNCTION holdfast.segment_table(of_shard integer, at_position bigint) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT format('frames_%s_%s', of_shard, lpad(at_position::text, 20, '0')) $$;

-- Makes the partition of a segment. ATTACH waits for no append; CREATE TABLE … PARTITION OF would wait for all of them.
CREATE FUNCTION holdfast.add_segment(of_shard integer, at_position bigint, by_epoch bigint, at_ms bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    made text := holdfast.segment_table(of_shard, at_position);
BEGIN
    EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.frames INCLUDING STORAGE)', made);
    EXECUTE format(
        'ALTER TABLE holdfast.%I ATTACH PARTITION holdfast.%I FOR VALUES IN (%s)', 'frames_' || of_shard, made, at_position);
    INSERT INTO holdfast.segments (shard, first_position, epoch, created_ms)
    VALUES (of_shard, at_position, by_epoch, at_ms);
END $$;

-- The last position in the newest segment. STABLE: it sees what the calling statement sees.
CREATE FUNCTION holdfast.end_position(of_shard integer, in_segment bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    found_end bigint;
BEGIN
    EXECUTE format(
        'SELECT first_position + count - 1 FROM holdfast.%I ORDER BY shard DESC, first_position DESC LIMIT 1',
        holdfast.segment_table(of_shard, in_segment)) INTO found_end;
    RETURN coalesce(found_end, in_segment - 1);
END $$;

CREATE FUNCTION holdfast.create_cluster(with_id bytea, with_shards integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.cluster (cluster_id, shards) VALUES (with_id, with_shards);
    FOR made IN 0 .. with_shards - 1 LOOP
        EXECUTE format(
            'CREATE TABLE holdfast.%I PARTITION OF holdfast.frames FOR VALUES IN (%s) PARTITION BY LIST (segment)',
            'frames_' || made, made);
        INSERT INTO holdfast.leaders (shard, segment) VALUES (made, 1);
        PERFORM holdfast.add_segment(made, 1, 0, holdfast.now_ms());
    END LOOP;
END $$;

-- Locks the leader row of a shard against appends and takeovers; whether this epoch leads.
CREATE FUNCTION holdfast.lock_leader(of_shard integer, by_epoch bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM holdfast.leaders l WHERE l.shard = of_shard AND l.epoch = by_epoch FOR UPDATE;
    RETURN FOUND;
END $$;

-- Drops the partitions of removed segments. Gives up at once if a long statement, such as a dump, uses the frames of the
-- shard: waiting would stop its appends. The next call tries again.
CREATE FUNCTION holdfast.drop_removed(of_shard integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    removed bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.segments s WHERE s.shard = of_shard AND s.is_removed) THEN
        RETURN;
    END IF;
    PERFORM set_config('lock_timeout', '100ms', true);
    FOR removed IN SELECT s.first_position FROM holdfast.segments s WHERE s.shard = of_shard AND s.is_removed ORDER BY 1
    LOOP
        EXECUTE format('LOCK TABLE ONLY holdfast.%I IN ACCESS EXCLUSIVE MODE', 'frames_' || of_shard);
        EXECUTE format('DROP TABLE holdfast.%I', holdfast.segment_table(of_shard, removed));
        DELETE FROM holdfast.segments s WHERE s.shard = of_shard AND s.first_position = removed;
    END LOOP;
EXCEPTION WHEN lock_not_available THEN
    NULL;
END $$;

-- Returns the name of an `Append`. Locks the leader row first: every later statement sees all appends before.
CREATE FUNCTION holdfast.open_segment(of_shard integer, by_epoch bigint, at_position bigint, at_ms bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    newest bigint;
    found_end bigint;
BEGIN
    IF NOT holdfast.lock_leader(of_shard, by_epoch) THEN
        RETURN 'fenced';
    END IF;
    SELECT l.segment INTO newest FROM holdfast.leaders l WHERE l.shard = of_shard;
    found_end := holdfast.end_position(of_shard, newest);
    IF newest = at_position THEN
        RETURN 'written';
    ELSIF at_position <= found_end THEN
        RETURN 'taken';
    ELSIF at_position <> found_end + 1 AND (found_end >= newest OR newest > 1) THEN
        RAISE EXCEPTION 'the journal of shard % ends at position %, so no segment can begin at %',
            of_shard, found_end, at_position USING ERRCODE = 'HF003';
    END IF;
    -- A segment without a frame goes: a journal that is copied into a new cluster begins above position 1.
    UPDATE holdfast.segments s SET
        last_position = found_end, is_removed = found_end < newest,
        bytes = pg_total_relation_size(format('holdfast.%I', holdfast.segment_table(of_shard, newest))::regclass)
    WHERE s.shard = of_shard AND s.first_position = newest;
    PERFORM holdfast.add_segment(of_shard, at_position, by_epoch, at_ms);
    UPDATE holdfast.leaders l SET segment = at_position WHERE l.shard = of_shard;
    RETURN 'written';
END $$;

-- Removes sealed segments, oldest first, up to the first that is not named or that a reader has pinned.
CREATE FUNCTION holdfast.remove_segments(of_shard integer, by_epoch bigint, named text[])
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    pinned bigint;
    sealed record;
BEGIN
    IF NOT holdfast.lock_leader(of_shard, by_epoch) THEN
        RETURN 'fenced';
    END IF;
    DELETE FROM holdfast.pins p WHERE p.shard = of_shard AND p.expires_at <= clock_timestamp();
    SELECT min(p.position) INTO pinned FROM holdfast.pins p WHERE p.shard = of_shard;
    FOR sealed IN
        SELECT s.first_position, s.last_position FROM holdfast.segments s
        WHERE s.shard = of_shard AND NOT s.is_removed ORDER BY s.first_position
    LOOP
        EXIT WHEN sealed.last_position IS NULL OR sealed.last_position >= pinned
            OR holdfast.segment_table(of_shard, sealed.first_position) <> ALL (named);
        UPDATE holdfast.segments s SET is_removed = true
        WHERE s.shard = of_shard AND s.first_position = sealed.first_position;
    END LOOP;
    PERFORM holdfast.drop_removed(of_shard);
    RETURN 'written';
END $$;

-- Makes the chunks of an upload a snapshot, in place of one at the same position. Fails if a chunk is missing: an upload
-- that stalls for an hour is deleted.
CREATE FUNCTION holdfast.finish_snapshot(finished uuid, wanted holdfast.snapshots) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM holdfast.snapshot_uploads u WHERE u.upload = finished;
    IF NOT FOUND OR wanted.chunks <> (SELECT count(*) FROM holdfast.snapshot_chunks c WHERE c.upload = finished) THEN
        RAISE EXCEPTION 'the upload of the snapshot at position % was deleted', wanted.position USING ERRCODE = 'HF005';
    END IF;
    PERFORM holdfast.remove_snapshot(wanted.shard, wanted.position);
    INSERT INTO holdfast.snapshots SELECT wanted.*;
END $$;

CREATE FUNCTION holdfast.remove_snapshot(of_shard integer, at_position bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM holdfast.snapshot_chunks c USING holdfast.snapshots s
    WHERE s.shard = of_shard AND s.position = at_position AND c.upload = s.upload;
    DELETE FROM holdfast.snapshots s WHERE s.shard = of_shard AND s.position = at_position;
END $$;
