"""Bases by name: each is a tuple of makers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from stanct.bases.exchanges import Exchanges
from stanct.bases.loop import Recipe
from stanct.bases.makers import AnnealedScouts, Given
from stanct.bases.modes import Approximations, Ascents, Curvature, Pathfinder, Pilots
from stanct.bases.particles import Particles
from stanct.bases.products import Products
from stanct.bases.ridges import Ridges
from stanct.bases.tails import Tails
from stanct.bases.wide import Wide
from stanct.common.names import MODES
from stanct.common.settings import refuse_unknown

AUTO = "auto"
"""Name of the recipe of the default method: that of `MODES`, and draws in two stages."""

_MEASURED = (
    Ascents(), Particles(), Exchanges(), Curvature(), Pathfinder(), Pilots(), Tails(),
)  # fmt: skip
_MODES = (Wide(curved=True), *_MEASURED)
# Only draws of a product are to be had, and chains do not move from it.
_DRAWN = (Wide(curved=True), _MEASURED[0], Products(), *_MEASURED[1:])

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        one.name: one
        for one in (
            Recipe(name="pilot", makers=(Wide(), *_MEASURED, AnnealedScouts())),
            Recipe(
                name="low_rank", makers=(Wide(), *_MEASURED, AnnealedScouts()), shape="low rank"
            ),
            Recipe(name="mixture", makers=_MEASURED, shape="mixture", wide_share=0.0),
            Recipe(name=MODES, makers=(*_MODES, Ridges(), AnnealedScouts()), shape="modes"),
            # What is simple given a few parameters needs no ridges, so that it is asked before.
            Recipe(name=AUTO, makers=(*_DRAWN, Given(), Ridges(), AnnealedScouts()), shape="modes"),
            Recipe(name="pathfinder", makers=(Approximations(),)),
            Recipe(name="laplace", makers=(Approximations(way="laplace"),)),
            Recipe(name="advi", makers=(Approximations(way="advi"),)),
        )
    }
)
"""What ``base=`` stands for, by name."""


def recipe(name: str = AUTO) -> Recipe:
    """The makers of a base by name, to change and to pass as ``base=``.

    Parameters
    ----------
    name
        A name that ``base=`` takes, or ``"auto"`` for the base of the default method.

    Raises
    ------
    SamplingError
        There is no such recipe.
    """
    if name not in RECIPES:
        refuse_unknown("recipe", name, RECIPES)
    return replace(RECIPES[name])
