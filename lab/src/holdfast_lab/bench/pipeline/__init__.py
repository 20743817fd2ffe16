"""The pipeline beside Procrastinate."""
