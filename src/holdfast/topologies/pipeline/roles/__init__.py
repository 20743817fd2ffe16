"""The roles of the pipeline, each a separate process: they carry jobs between the database and the workers."""
