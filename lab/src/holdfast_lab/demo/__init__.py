"""`make demo`: jobs and workers, one of which is killed, and the end of every job."""

#: The environment variable with the directory of the demo.
DATA_VARIABLE = "DEMO_DATA"
