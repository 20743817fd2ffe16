"""Shared look of all plots. A separate module, because only plots need matplotlib.

Everything that is not data is drawn in one ink. Inside an HTML page that ink becomes the colour of the text, so that
the same plot can be read on white and on black.
"""

import io
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

INK = "#333a45"
PAPER = "#fefefe"


def encoded(canvas: Figure, name: str, kind: str = "svg") -> bytes:
    """The file of a plot; the same data gives the same bytes."""
    drawn = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    with mpl.rc_context({"svg.hashsalt": f"holdfast {name}", "svg.fonttype": "none", "font.family": "sans-serif"}):
        canvas.savefig(drawn, format=kind, metadata=metadata, facecolor=PAPER)
    return drawn.getvalue()


def dress(panel: Any, x_label: str = "", y_label: str = "") -> None:  # noqa: ANN401 - matplotlib's axes
    """Labels, grid and frame of one panel."""
    if x_label:
        panel.set_xlabel(x_label, color=INK, fontsize=9)
    if y_label:
        panel.set_ylabel(y_label, color=INK, fontsize=9)
    panel.tick_params(which="both", colors=INK, labelsize=9)
    panel.grid(color=INK, alpha=0.18, linewidth=0.7)
    panel.set_axisbelow(True)
    panel.patch.set_visible(False)
    for side, spine in panel.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_color(INK)
