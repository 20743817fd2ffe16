"""The whole queue in one process, on a simulated clock, disk and network, from one seed.

The coordinator, its sessions, recovery, snapshots and the journal are the production code, unchanged; this package
implements the ports that they use. No module reads a real clock or the hash of a string, so a seed determines the run:
the trace is the same on every machine and for every PYTHONHASHSEED.
"""
