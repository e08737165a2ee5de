"""Figure 3 (a) of Graham & Storkey (2017): the factor graph of the radon model."""

from __future__ import annotations

from common import BLUE, INK, QUIET, Made, Work, panels
from matplotlib.patches import FancyBboxPatch

# Each variable with its place and its number, and each factor with its neighbours.
VARIABLES = {
    "σ$_α$": (0.9, 4, 1), "μ$_α$": (2.3, 4, 1), "μ$_β$": (4.7, 4, 1), "σ$_β$": (6.1, 4, 1),
    "α$^{(j)}$": (1.6, 2.2, 85), "β": (5.4, 2.2, 2), "ŷ$^{(i)}$": (3.5, 1.0, 0),
    "ε": (6.1, -0.6, 1), "y$^{(i)}$": (3.5, -1.4, 0),
}  # fmt: skip
FACTORS = (
    ("C$_{≥0}$(2.5)", (0.9, 4.9), ("σ$_α$",)), ("N(0, 1)", (2.3, 4.9), ("μ$_α$",)),
    ("N(0, 1)", (4.7, 4.9), ("μ$_β$",)), ("C$_{≥0}$(2.5)", (6.1, 4.9), ("σ$_β$",)),
    ("N(μ$_α$, σ$_α$)", (1.6, 3.1), ("σ$_α$", "μ$_α$", "α$^{(j)}$")),
    ("N(μ$_β$, σ$_β$)", (5.4, 3.1), ("μ$_β$", "σ$_β$", "β")),
    ("δ(α$^{(c_i)}$ + x$^{(i)}$·β)", (3.5, 1.75), ("α$^{(j)}$", "β", "ŷ$^{(i)}$")),
    ("C$_{≥0}$(2.5)", (6.1, 0.3), ("ε",)),
    ("N(ŷ$^{(i)}$, ε)", (3.5, -0.4), ("ŷ$^{(i)}$", "ε", "y$^{(i)}$")),
)  # fmt: skip
PLATES = (("85 counties", (0.75, 1.6, 1.7, 1.05)), ("919 homes", (2.3, -1.85, 2.4, 3.25)))


def figure_3a(work: Work) -> Made:
    """The factor graph of the radon model."""
    figure, axes = panels(1, 1, (6.4, 5.6))
    one = axes[0, 0]
    for name, (left, bottom, width, height) in PLATES:
        one.add_patch(FancyBboxPatch((left, bottom), width, height, boxstyle="round,pad=0.05",
                                     fc="none", ec=QUIET, lw=0.9))  # fmt: skip
        one.text(left + width, bottom, name, fontsize=8, color=QUIET, ha="right", va="bottom")
    for name, place, neighbours in FACTORS:
        for other in neighbours:
            one.plot(*zip(place, VARIABLES[other][:2], strict=True), color=QUIET, lw=1, zorder=1)
        one.plot(*place, "s", ms=8, color=INK, zorder=2)
        under = len(neighbours) == 3 and place[1] > 0  # lines come from above on both sides
        height = place[1] + (-0.08 if under else 0.06)
        one.text(place[0] + 0.17, height, name, fontsize=8.5, color=INK,
                 va="top" if under else "bottom")  # fmt: skip
    for name, (x, y, _) in VARIABLES.items():
        shade = "#d9e6f5" if name.startswith("y") else "white"
        one.plot(x, y, "o", ms=30, mfc=shade, mec=BLUE, mew=1.3, zorder=3)
        one.text(x, y, name, fontsize=11, ha="center", va="center", color=INK, zorder=4)
    one.set(xlim=(0.2, 7.6), ylim=(-2.1, 5.5), xticks=[], yticks=[])
    one.grid(False)
    for spine in one.spines.values():
        spine.set_visible(False)
    rows = [{"variable": name.replace("$", ""), "parameters": count, "factors":
             " ".join(text for text, _, others in FACTORS if name in others).replace("$", "")}
            for name, (_, _, count) in VARIABLES.items()]  # fmt: skip
    says = (
        f"The model has {sum(count for *_, count in VARIABLES.values())} parameters: five scalars, "
        "85 intercepts α and two slopes β. N is a normal density with its standard deviation, "
        "C≥0 a half-Cauchy density with its scale, and δ fixes the mean of a home's log radon. "
        "Shaded is what is observed. The program writes α and β as standard normal variables, "
        "shifted and scaled."
    )
    return Made(rows, figure, says)
