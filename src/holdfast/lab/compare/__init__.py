"""`holdfast lab compare`: the same load on several topologies, and what differs.

A *trial* is one workload on one topology, once. A *run* is one trial of every workload on every topology; topologies
take turns within it, so that a change of the machine's mood meets all. The processes of a topology are always fresh.
"""
