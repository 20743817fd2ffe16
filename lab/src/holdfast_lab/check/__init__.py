"""The checker of recorded histories: each guarantee was kept, broken, or not tested."""

from holdfast_lab.check.judge import judge
from holdfast_lab.check.verdict import Finding, Ruling, Status, Verdict
from holdfast_lab.check.verdict_report import markdown, render

__all__ = ["Finding", "Ruling", "Status", "Verdict", "judge", "markdown", "render"]
