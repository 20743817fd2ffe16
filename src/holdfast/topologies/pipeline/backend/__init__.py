"""The ports of the pipeline: jobs are rows of one database; between it and the workers, tickets are carried."""
