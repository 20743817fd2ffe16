-- What a job's history needs of an attempt beside its outcome: what a failed attempt said before it was tried again, its
-- traceback, and why its lease was taken back (empty: it was reported); and when a running job was asked to stop.
ALTER TABLE holdfast.executions
    ADD COLUMN summary text NOT NULL DEFAULT '',
    ADD COLUMN detail text NOT NULL DEFAULT '',
    ADD COLUMN loss text NOT NULL DEFAULT '';
ALTER TABLE holdfast.jobs ADD COLUMN cancel_ms bigint NOT NULL DEFAULT 0;

-- FAILED jobs are kept for longer than others, so each kind is found by an index of its own.
CREATE INDEX jobs_ended ON holdfast.jobs (finished_ms) WHERE state > 2 AND state <> 4;
CREATE INDEX jobs_failed ON holdfast.jobs (finished_ms) WHERE state = 4;
DROP INDEX holdfast.jobs_finished;
