"""The ports of the pipeline: jobs are rows of one database, and everything between it and the workers only carries tickets."""
