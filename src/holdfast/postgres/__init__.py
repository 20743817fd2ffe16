"""The parts of every topology on PostgreSQL: migrations, statements by name, and the translation of errors."""
