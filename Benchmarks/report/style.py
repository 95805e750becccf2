"""How the charts look."""

import io
import re

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

SHALE, OTHER, MARK = "#c2410c", "#3b6ea5", "#374151"

plt.rcParams.update(
    {
        "svg.hashsalt": "shale",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.facecolor": "white",
    }
)


def write(figure, path):
    """Without metadata and invisible digits, as the charts are in the repository."""
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(text, format="svg", bbox_inches="tight", metadata=nothing)
    plt.close(figure)
    short = re.sub(r"\s*\n\s*", "\n", text.getvalue())
    path.write_text(re.sub(r"(?<=\.\d)\d+", "", short))
