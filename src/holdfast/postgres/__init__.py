"""What every topology on PostgreSQL uses: migrations, statements by name, and the translation of errors."""
