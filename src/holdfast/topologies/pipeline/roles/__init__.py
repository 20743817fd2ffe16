"""The roles of the pipeline, each a process of its own: what carries jobs between the database and the workers."""
