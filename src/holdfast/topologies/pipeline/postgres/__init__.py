"""The pipeline's store over PostgreSQL; every statement is in an `.sql` file."""
