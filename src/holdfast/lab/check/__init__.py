"""The judge of recorded histories: every promise, kept, broken, or not put to the test."""

from holdfast.lab.check.judging import judge
from holdfast.lab.check.rendering import markdown, render
from holdfast.lab.check.ruling import Finding, Ruling, Status, Verdict

__all__ = ["Finding", "Ruling", "Status", "Verdict", "judge", "markdown", "render"]
