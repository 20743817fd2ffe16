-- What a worker runs is counted in jobs; nobody read what its coordinator had last heard of it.
ALTER TABLE holdfast.assignments DROP COLUMN running;
