"""The path of one lone submit and of one lone job: timestamps at every hop, over each link.

A probe is a function of the product that is wrapped while a traced process runs: it stores the time at its start or its
end. All processes of a machine share the monotonic clock, and one call is in progress at a time, so the probes that
fire between the start and the end of a call belong to it.
"""
