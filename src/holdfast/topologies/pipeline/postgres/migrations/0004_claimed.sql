-- Rows whose tickets were lost are found among all that were never claimed, so that they are claimed again in their turn.
CREATE INDEX jobs_claimed ON holdfast.jobs (visible_ms, number) WHERE state = 1 AND claimed_ms > 0;
