"""The whole queue in one process, on a simulated clock, disk and network, from one seed.

The coordinator, its sessions, recovery, snapshots and the journal are the production code, unchanged;
what they reach through ports is made here. Nothing reads a real clock or a hash of a string, so a seed is
a run: the same trace, whatever the machine and PYTHONHASHSEED.
"""
