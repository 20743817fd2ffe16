"""The dashboard: one page, its modules and its style sheet, served as they are; they use the public HTTP API alone."""
