-- Schedules, the ticks that came up, and who may fire them. Instants are milliseconds by this server's clock.

CREATE TABLE holdfast.schedules (
    name text PRIMARY KEY,
    -- Its own for ever: one that is made anew under the same name has other ticks.
    id bigint NOT NULL UNIQUE GENERATED ALWAYS AS IDENTITY,
    -- All that was said (MessagePack); the next few columns tell people the most of it.
    spec bytea NOT NULL,
    type text NOT NULL,
    queue text NOT NULL,
    cron text NOT NULL,
    timezone text NOT NULL,
    every_ms bigint NOT NULL,
    at_ms bigint NOT NULL,
    is_paused boolean NOT NULL DEFAULT false,
    -- When its plan was made, and what intervals count from.
    created_ms bigint NOT NULL,
    -- 0: there is none.
    next_ms bigint NOT NULL,
    last_tick_ms bigint NOT NULL DEFAULT 0,
    last_job_id uuid,
    fired bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    missed bigint NOT NULL DEFAULT 0
);
CREATE INDEX schedules_due ON holdfast.schedules (next_ms, name) WHERE next_ms > 0 AND NOT is_paused;

-- What became of each tick. Nobody can do a tick that is here; after a while its schedule is far past it.
CREATE TABLE holdfast.ticks (
    schedule_id bigint NOT NULL,
    tick_ms bigint NOT NULL,
    outcome text NOT NULL,
    job_id uuid,
    epoch bigint NOT NULL,
    done_ms bigint NOT NULL,
    PRIMARY KEY (schedule_id, tick_ms)
);
CREATE INDEX ticks_done ON holdfast.ticks (done_ms);

-- Who may fire, until when; the epoch grows with each change of hands.
CREATE TABLE holdfast.leaders (
    role text PRIMARY KEY,
    holder text NOT NULL DEFAULT '',
    epoch bigint NOT NULL DEFAULT 0,
    lease_until_ms bigint NOT NULL DEFAULT 0
);
INSERT INTO holdfast.leaders (role) VALUES ('cron');
