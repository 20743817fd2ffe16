"""The pipeline's store on PostgreSQL; the statements are in `.sql` files."""
