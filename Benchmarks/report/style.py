"""How the charts look."""

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

SHALE, FLOOR, OTHER, MARK = "#c2410c", "#9ca3af", "#3b6ea5", "#374151"

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
    figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
