"""The embedded topology: one ledger in the process that opens a directory, or in a server."""
