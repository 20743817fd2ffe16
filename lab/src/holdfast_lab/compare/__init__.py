"""`holdfast lab compare`: the same load on several topologies, and a report of the differences.

A *trial* is one workload on one topology, once. A *run* is one trial of every workload on every topology; topologies
take turns within it, so that a change of the machine's load affects all. Every turn starts new processes.
"""
