"""Wiring: which parts run in which process. No rules live here."""
