"""Measurements under attack and fault, one module for each figure: `python -m holdfast_lab.faults.NAME`."""
