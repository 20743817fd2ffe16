"""Holdfast: a durable, distributed job queue and scheduler.

The public names of the SDK will stand here, and nothing else.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
