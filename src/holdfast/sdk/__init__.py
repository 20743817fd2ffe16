"""The SDK: job functions, handles of jobs, and the one background loop on which all of it runs."""
