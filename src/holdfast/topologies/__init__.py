"""Wiring: the parts that run in each process. There are no rules here; `table.py` lists the topologies."""
