"""The dashboard: one page, its modules and its style sheet, static files that use only the public HTTP API."""
