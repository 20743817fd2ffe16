"""The database of the cluster in PostgreSQL; the statements are in `.sql` files."""
