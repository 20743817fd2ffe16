-- Jobs and what becomes of them. Instants are milliseconds since 1970 by this server's clock; states are the numbers of
-- the public contract: 1 QUEUED, 2 RUNNING, 3 DONE, 4 FAILED, 5 CANCELED.

CREATE FUNCTION holdfast.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

CREATE SEQUENCE holdfast.numbers;
CREATE SEQUENCE holdfast.tokens;

-- What this database calls itself, for ever.
CREATE TABLE holdfast.meta (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    cluster_id uuid NOT NULL DEFAULT gen_random_uuid(),
    made_ms bigint NOT NULL DEFAULT holdfast.now_ms()
);
INSERT INTO holdfast.meta DEFAULT VALUES;

-- The only truth about a job.
CREATE TABLE holdfast.jobs (
    id uuid PRIMARY KEY,
    -- Its place in submit order.
    number bigint NOT NULL DEFAULT nextval('holdfast.numbers'),
    created_ms bigint NOT NULL,
    not_before_ms bigint NOT NULL DEFAULT 0,
    -- While it is QUEUED: from when on a watcher may claim it.
    visible_ms bigint NOT NULL,
    claimed_ms bigint NOT NULL DEFAULT 0,
    started_ms bigint NOT NULL DEFAULT 0,
    finished_ms bigint NOT NULL DEFAULT 0,
    lease_until_ms bigint NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0,
    -- The token of the last report that counted; 0 where none did, or where something else ended it afterwards.
    result_token bigint NOT NULL DEFAULT 0,
    state smallint NOT NULL DEFAULT 1,
    priority smallint NOT NULL,
    max_attempts smallint NOT NULL,
    max_losses smallint NOT NULL,
    backoff_kind smallint NOT NULL,
    simulated boolean NOT NULL,
    cancel_requested boolean NOT NULL DEFAULT false,
    timeout_ms integer NOT NULL,
    backoff_base_ms integer NOT NULL,
    backoff_max_ms integer NOT NULL,
    deliveries integer NOT NULL DEFAULT 0,
    grants integer NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    losses integer NOT NULL DEFAULT 0,
    -- Grows with each change that clients can see.
    version integer NOT NULL DEFAULT 1,
    queue text NOT NULL,
    type text NOT NULL,
    -- The type that a worker must know.
    route text NOT NULL,
    worker text NOT NULL DEFAULT '',
    cancel_reason text NOT NULL DEFAULT '',
    request_id text,
    unique_key text,
    -- For searches; what the submitter said, headers and all, is in extra (MessagePack).
    labels jsonb,
    extra bytea,
    payload bytea NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- What is claimed: lane by lane, so that a lane that nobody serves holds no other up.
CREATE INDEX jobs_waiting ON holdfast.jobs (priority, queue, route, visible_ms, number) WHERE state = 1;
CREATE INDEX jobs_leased ON holdfast.jobs (lease_until_ms) WHERE state = 2;
CREATE INDEX jobs_held ON holdfast.jobs (worker, token) WHERE state = 2;
CREATE INDEX jobs_listed ON holdfast.jobs (state, created_ms, id);
CREATE INDEX jobs_finished ON holdfast.jobs (finished_ms) WHERE state > 2;
CREATE UNIQUE INDEX jobs_requested ON holdfast.jobs (request_id) WHERE request_id IS NOT NULL;
CREATE UNIQUE INDEX jobs_unique ON holdfast.jobs (type, unique_key) WHERE unique_key IS NOT NULL AND state < 3;

-- One row for each attempt that has ended, and what came of it: 1 it is tried again, else how the job ended.
CREATE TABLE holdfast.executions (
    job_id uuid NOT NULL,
    token bigint NOT NULL,
    worker text NOT NULL,
    started_ms bigint NOT NULL,
    ended_ms bigint NOT NULL,
    outcome smallint NOT NULL,
    reason text NOT NULL DEFAULT '',
    runtime_ms bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, token)
);

-- Results of what is DONE.
CREATE TABLE holdfast.completed (
    job_id uuid PRIMARY KEY,
    finished_ms bigint NOT NULL,
    runtime_ms bigint NOT NULL,
    summary text NOT NULL,
    output bytea NOT NULL
);

-- Results of what is FAILED or CANCELED.
CREATE TABLE holdfast.failed (
    job_id uuid PRIMARY KEY,
    finished_ms bigint NOT NULL,
    runtime_ms bigint NOT NULL,
    state smallint NOT NULL,
    failure_reason text NOT NULL,
    summary text NOT NULL,
    output bytea NOT NULL
);

-- How many jobs of a queue are in a state: the sum. Whoever moves jobs adds rows and touches none, so nobody waits for
-- anybody; now and then many rows are made one.
CREATE TABLE holdfast.tallies (
    queue text NOT NULL,
    state smallint NOT NULL,
    jobs bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Queues that are not open: 2 PAUSED, 3 DRAINING.
CREATE TABLE holdfast.queues (
    name text PRIMARY KEY,
    mode smallint NOT NULL,
    reason text NOT NULL,
    since_ms bigint NOT NULL
);

-- Workers and the queue processes that they take tickets from.
CREATE TABLE holdfast.assignments (
    worker text PRIMARY KEY,
    session text NOT NULL,
    routes text[] NOT NULL,
    job_queues text[] NOT NULL,
    slots integer NOT NULL,
    places text[] NOT NULL,
    running integer NOT NULL,
    is_draining boolean NOT NULL,
    heard_ms bigint NOT NULL
);

-- Jobs as clients see them.
CREATE VIEW holdfast.job_views AS
SELECT
    j.id::text AS job_id,
    j.id,
    j.type, j.queue, j.priority, j.max_attempts, j.max_losses, j.timeout_ms,
    j.backoff_kind, j.backoff_base_ms, j.backoff_max_ms, j.simulated,
    j.state, j.created_ms, j.started_ms, j.finished_ms, j.not_before_ms, j.cancel_requested,
    coalesce(f.failure_reason, '') AS failure_reason,
    j.failures + j.losses + (j.state = 2 OR (j.state > 2 AND j.result_token > 0))::integer AS attempts,
    j.extra,
    j.failures + (j.state = 4 AND j.result_token > 0)::integer AS failures,
    j.losses, j.token, j.worker
FROM holdfast.jobs j
LEFT JOIN holdfast.failed f ON f.job_id = j.id;
