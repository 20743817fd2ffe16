"""The pipeline beside Procrastinate: both keep their jobs in the same PostgreSQL, in the same run."""
