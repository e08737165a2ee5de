"""Families of random targets with exact answers.

A family is a function of a random generator. It draws sizes, parameters and data, and returns a
Stan program with its exact log Z and the exact mean of one quantity. log Z is that of the program
as written, and every program is a proper density of all that it names.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import grouped
import latent
import many
import modal
import numpy as np
import periods
import regressed
import shaped
from target import FAMILIES, Target

ROOT = Path(__file__).resolve().parents[2]
# Importing these modules enters their families in `FAMILIES`.
MODULES = (grouped, latent, modal, periods, shaped, regressed)
# The families of `FAMILIES` and those that are run only where they are named.
BY_NAME = FAMILIES | many.MANY
# A target less exact than this would show errors of its family, not of a sampler. If so many draws
# in a row are, the family is at fault.
LEAST_EXACT, MOST_DRAWN = 5e-3, 4
# Targets that are always the same: a folder, and the variable whose first element is the quantity.
FIXED = {
    "fixed_funnel": ("stan_models/funnel", "log_variance"),
    "fixed_gaussian": ("stan_models/gaussian", "slope"),
    "fixed_radon": ("examples/radon", "beta"),
    "fixed_skewed": ("stan_models/skewed", "rate"),
    "fixed_two_modes": ("stan_models/two_modes", "x"),
}


def drawn(name: str, seed: int) -> Target:
    """The target that this seed draws from a family.

    Families whose names share their first word draw the same random numbers. A target that the
    quadrature does not resolve is drawn again.
    """
    if name in FIXED:
        return fixed(*FIXED[name])
    rng = np.random.default_rng([seed, zlib.crc32(name.split("_")[0].encode())])
    why = ""
    for _ in range(MOST_DRAWN):
        try:
            target = BY_NAME[name](rng)
        except ArithmeticError as failure:
            why = f"has no exact answer, because {failure}"
            continue
        if target.tolerance < LEAST_EXACT:
            return target
        why = f"is exact to {target.tolerance:.1e} only"
    raise ArithmeticError(f"{name} {seed} {why}")


def fixed(folder: str, name: str) -> Target:
    """A folder with a program, data and truth.json."""
    path = ROOT / folder
    data = path / f"{path.name}.data.json"
    truth = json.loads((path / "truth.json").read_text(encoding="utf-8"))
    return Target(
        (path / f"{path.name}.stan").read_text(encoding="utf-8"),
        json.loads(data.read_text(encoding="utf-8")) if data.exists() else {},
        truth["log_z"],
        lambda v: v[name].reshape(*v[name].shape[:2], -1)[..., 0],
        float(np.ravel(truth["mean"][name])[0]),
    )
