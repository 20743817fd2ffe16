"""`make demo`: real jobs, real workers, one of which is killed; shows what becomes of every job."""

#: Names the directory of one demo to its processes.
DATA_VARIABLE = "DEMO_DATA"
