-- Jobs that users submit inside their own transactions. The leader of a shard deletes a row in the transaction that
-- appends the job to the journal, so that a row becomes a job exactly once.

CREATE TABLE holdfast.inbox (
    shard integer NOT NULL,
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    job_id uuid NOT NULL,
    submitted_ms bigint NOT NULL,
    not_before_ms bigint NOT NULL,
    type text NOT NULL,
    queue text NOT NULL,
    priority integer NOT NULL,
    max_attempts integer NOT NULL,
    max_losses integer NOT NULL,
    timeout_ms bigint NOT NULL,
    -- The kind and two times, as in the journal; NULL for the usual rule.
    backoff bigint[],
    unique_key text NOT NULL,
    request_id text NOT NULL,
    labels jsonb,
    headers jsonb,
    payload bytea NOT NULL,
    PRIMARY KEY (shard, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 1,
    autovacuum_vacuum_cost_delay = 0
);

-- Rows that the ledger has refused, with its reason. They stay until an operator deletes them.
CREATE TABLE holdfast.rejected (
    LIKE holdfast.inbox,
    reason text NOT NULL,
    message text NOT NULL,
    rejected_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard, id)
);

-- The owner of a key: the first eight bytes of its SHA-256 as an unsigned number, modulo the number of shards.
CREATE FUNCTION holdfast.owner(key text, shards integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    hash bytea;
    high bigint;
    low bigint;
BEGIN
    IF shards = 1 THEN
        RETURN 0;
    END IF;
    hash := sha256(convert_to(key, 'UTF8'));
    high := (get_byte(hash, 0)::bigint << 24) | (get_byte(hash, 1) << 16) | (get_byte(hash, 2) << 8) | get_byte(hash, 3);
    low := (get_byte(hash, 4)::bigint << 24) | (get_byte(hash, 5) << 16) | (get_byte(hash, 6) << 8) | get_byte(hash, 7);
    RETURN ((high % shards) * (4294967296 % shards) + low) % shards;
END $$;

CREATE FUNCTION holdfast.refuse(reason text, problem text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', problem USING ERRCODE = '22023', DETAIL = reason;
END $$;

CREATE FUNCTION holdfast.check_name(what text, name text, reason text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF name IS NULL OR name !~ '^[A-Za-z0-9._-]{1,128}$' THEN
        PERFORM holdfast.refuse(reason, format(
            '%s must be 1 to 128 letters, digits, ''.'', ''_'' or ''-'', got %L', what, left(name, 80)));
    END IF;
END $$;

CREATE FUNCTION holdfast.check_number(what text, given numeric, low numeric, high numeric) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF given IS NULL OR given NOT BETWEEN low AND high THEN
        PERFORM holdfast.refuse('OPTION_OUT_OF_RANGE', format('%s must be from %s to %s, got %s', what, low, high, given));
    END IF;
END $$;

-- Control characters and separators of lines; the ledger rejects what else cannot be printed.
CREATE FUNCTION holdfast.is_printable(given text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT given !~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]' $$;

CREATE FUNCTION holdfast.check_key(what text, key text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF length(key) > 256 THEN
        PERFORM holdfast.refuse(upper(replace(what, ' ', '_')) || '_TOO_LONG', format(
            'the %s must be at most 256 characters, got %s', what, length(key)));
    ELSIF NOT holdfast.is_printable(key) THEN
        PERFORM holdfast.refuse(upper(replace(what, ' ', '_')) || '_INVALID', format(
            'the %s must be printable text, got %L', what, left(key, 80)));
    END IF;
END $$;

CREATE FUNCTION holdfast.check_pairs(what text, pairs jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    pair record;
BEGIN
    IF jsonb_typeof(pairs) <> 'object' THEN
        PERFORM holdfast.refuse('OPTION_INVALID', format(
            'the %ss must be a JSON object of texts, got %L', what, left(pairs::text, 80)));
    ELSIF (SELECT count(*) FROM jsonb_object_keys(pairs)) > 64 THEN
        PERFORM holdfast.refuse('LABELS_TOO_MANY', format(
            'expected at most 64 %ss, got %s', what, (SELECT count(*) FROM jsonb_object_keys(pairs))));
    END IF;
    FOR pair IN SELECT key, value, value #>> '{}' AS content FROM jsonb_each(pairs) LOOP
        IF length(pair.key) NOT BETWEEN 1 AND 128 OR NOT holdfast.is_printable(pair.key) THEN
            PERFORM holdfast.refuse('LABEL_KEY_INVALID', format(
                'each %s name must be 1 to 128 printable characters, got %L', what, left(pair.key, 80)));
        ELSIF jsonb_typeof(pair.value) <> 'string' THEN
            PERFORM holdfast.refuse('LABEL_VALUE_INVALID', format(
                'the %s %L must be a text, got %L', what, pair.key, left(pair.content, 80)));
        ELSIF length(pair.content) > 1024 THEN
            PERFORM holdfast.refuse('LABEL_VALUE_TOO_LONG', format(
                'the %s %L must be at most 1024 characters, got %s', what, pair.key, length(pair.content)));
        END IF;
    END LOOP;
END $$;

-- A millisecond count from seconds; NULL, NaN and infinity are out of range.
CREATE FUNCTION holdfast.checked_ms(what text, seconds double precision, high_ms bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    IF seconds IS NULL OR seconds NOT BETWEEN 0 AND high_ms / 1000.0 THEN
        PERFORM holdfast.refuse('OPTION_OUT_OF_RANGE', format(
            '%s must be from 0 to %s, got %s', what, (high_ms / 1000.0)::numeric::float8, seconds));
    END IF;
    RETURN round(seconds * 1000);
END $$;

CREATE FUNCTION holdfast.checked_backoff(kind text, base_s double precision, max_s double precision) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    number integer := array_position(ARRAY['fixed', 'exponential', 'quadratic'], kind) - 1;
BEGIN
    IF kind IS NULL THEN
        RETURN NULL;
    ELSIF number IS NULL THEN
        PERFORM holdfast.refuse('BACKOFF_INVALID', format(
            'backoff must be ''fixed'', ''exponential'' or ''quadratic'', got %L', left(kind, 80)));
    END IF;
    RETURN ARRAY[
        number,
        holdfast.checked_ms('backoff_base_s', base_s, 3600000),
        holdfast.checked_ms('backoff_max_s', max_s, 3600000)];
END $$;

-- Inserts one checked row and returns the id of its job. Runs with the rights of the owner of the schema, so that users
-- of `submit` need no rights on its tables.
CREATE FUNCTION holdfast.insert_row(
    type text, payload bytea, queue text, priority integer, max_attempts integer, max_losses integer,
    timeout_s double precision, delay_s double precision, not_before timestamptz, unique_key text, request_id text,
    labels jsonb, headers jsonb, backoff text, backoff_base_s double precision, backoff_max_s double precision
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    made uuid := gen_random_uuid();
    now_ms bigint := holdfast.now_ms();
    due_ms bigint := 0;
    key text := coalesce(nullif(request_id, ''), nullif(unique_key, ''), '');
    shards integer;
    shard integer;
BEGIN
    SELECT c.shards INTO shards FROM holdfast.cluster c;
    PERFORM holdfast.check_name('the job type', type, 'JOB_TYPE_INVALID');
    PERFORM holdfast.check_name('the queue name', queue, 'QUEUE_NAME_INVALID');
    PERFORM holdfast.check_number('priority', priority, 0, 9);
    PERFORM holdfast.check_number('max_attempts', max_attempts, 1, 100);
    PERFORM holdfast.check_number('max_losses', max_losses, 0, 100);
    IF payload IS NULL OR octet_length(payload) > 1048576 THEN
        PERFORM holdfast.refuse('PAYLOAD_TOO_LARGE', format(
            'the payload must be at most 1048576 bytes, got %s', octet_length(payload)));
    END IF;
    IF key <> '' THEN
        PERFORM holdfast.check_key('request id', request_id), holdfast.check_key('unique key', unique_key);
    END IF;
    IF labels <> '{}' THEN
        PERFORM holdfast.check_pairs('label', labels);
    END IF;
    IF headers <> '{}' THEN
        PERFORM holdfast.check_pairs('header', headers);
    END IF;
    IF delay_s <> 0 THEN
        due_ms := now_ms + holdfast.checked_ms('delay_s', delay_s, 31622400000);
    END IF;
    IF not_before IS NOT NULL THEN
        IF not_before NOT BETWEEN 'epoch' AND clock_timestamp() + interval '31622400 s' THEN
            PERFORM holdfast.refuse('DELAY_TOO_LONG', format('the job must be due within a year, got %s', not_before));
        END IF;
        due_ms := greatest(due_ms, floor(extract(epoch FROM not_before) * 1000)::bigint);
    END IF;
    -- The owner of a random id is a random shard.
    shard := holdfast.owner(CASE WHEN key = '' THEN made::text ELSE key END, shards);
    WHILE key <> '' AND holdfast.owner(made::text, shards) <> shard LOOP
        made := gen_random_uuid();
    END LOOP;
    INSERT INTO holdfast.inbox (
        shard, job_id, submitted_ms, not_before_ms, type, queue, priority, max_attempts, max_losses, timeout_ms,
        backoff, unique_key, request_id, labels, headers, payload
    ) VALUES (
        shard, made, now_ms, due_ms, type, queue, priority, max_attempts, max_losses,
        CASE WHEN timeout_s = 0 THEN 0 ELSE holdfast.checked_ms('timeout_s', timeout_s, 86400000) END,
        holdfast.checked_backoff(backoff, backoff_base_s, backoff_max_s),
        coalesce(unique_key, ''), coalesce(request_id, ''), nullif(labels, '{}'), nullif(headers, '{}'), payload
    );
    PERFORM pg_notify('holdfast_inbox', shard::text);
    RETURN made;
END $$;

-- Submits a job inside the caller's transaction, and returns its id. `payload` is sent as it is; a handler of Holdfast
-- expects a JSON object of its arguments. If a job with the request id or the unique key exists, no other is created.
CREATE FUNCTION holdfast.submit(
    type text, payload text DEFAULT '', queue text DEFAULT 'default', priority integer DEFAULT 5,
    max_attempts integer DEFAULT 1, max_losses integer DEFAULT 3, timeout_s double precision DEFAULT 0,
    delay_s double precision DEFAULT 0, not_before timestamptz DEFAULT NULL, unique_key text DEFAULT '',
    request_id text DEFAULT '', labels jsonb DEFAULT '{}', headers jsonb DEFAULT '{}', backoff text DEFAULT NULL,
    backoff_base_s double precision DEFAULT 1, backoff_max_s double precision DEFAULT 3600
) RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT holdfast.insert_row(
        type, convert_to(payload, 'UTF8'), queue, priority, max_attempts, max_losses, timeout_s, delay_s, not_before,
        unique_key, request_id, labels, headers, backoff, backoff_base_s, backoff_max_s)
$$;

CREATE FUNCTION holdfast.submit(
    type text, payload jsonb, queue text DEFAULT 'default', priority integer DEFAULT 5,
    max_attempts integer DEFAULT 1, max_losses integer DEFAULT 3, timeout_s double precision DEFAULT 0,
    delay_s double precision DEFAULT 0, not_before timestamptz DEFAULT NULL, unique_key text DEFAULT '',
    request_id text DEFAULT '', labels jsonb DEFAULT '{}', headers jsonb DEFAULT '{}', backoff text DEFAULT NULL,
    backoff_base_s double precision DEFAULT 1, backoff_max_s double precision DEFAULT 3600
) RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT holdfast.insert_row(
        type, convert_to(payload::text, 'UTF8'), queue, priority, max_attempts, max_losses, timeout_s, delay_s,
        not_before, unique_key, request_id, labels, headers, backoff, backoff_base_s, backoff_max_s)
$$;

CREATE FUNCTION holdfast.submit(
    type text, payload bytea, queue text DEFAULT 'default', priority integer DEFAULT 5,
    max_attempts integer DEFAULT 1, max_losses integer DEFAULT 3, timeout_s double precision DEFAULT 0,
    delay_s double precision DEFAULT 0, not_before timestamptz DEFAULT NULL, unique_key text DEFAULT '',
    request_id text DEFAULT '', labels jsonb DEFAULT '{}', headers jsonb DEFAULT '{}', backoff text DEFAULT NULL,
    backoff_base_s double precision DEFAULT 1, backoff_max_s double precision DEFAULT 3600
) RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT holdfast.insert_row(
        type, payload, queue, priority, max_attempts, max_losses, timeout_s, delay_s, not_before,
        unique_key, request_id, labels, headers, backoff, backoff_base_s, backoff_max_s)
$$;

-- Makes a statement fail, and so change nothing, if rows that it was to delete are gone.
CREATE FUNCTION holdfast.require_rows(there bigint, wanted bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF there <> wanted THEN
        RAISE EXCEPTION 'expected % rows of the inbox, found %', wanted, there USING ERRCODE = 'HF004';
    END IF;
    RETURN true;
END $$;
