"""The ports of the pipeline: jobs are rows of one database, and tickets carry them to the workers."""
