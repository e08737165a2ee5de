"""How TACT-HMC is set: coupling λ(ξ), hills, steps, and what follows for the thermostats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.optimize import root_scalar

from stanct.arrays import Array
from stanct.errors import SamplingError
from stanct.kernels import tact as compiled
from stanct.kernels.tact import Dynamics
from stanct.settings import whole

VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "tact": {},
        "no_tempering": {"tempering": False},
        "no_thermostat": {"thermostat": None},
        "sgnht": {"tempering": False},
        "sghmc": {"tempering": False, "thermostat": None},
        "sgld": {
            "tempering": False,
            "thermostat": None,
            "friction": 1.0,
            "integrator": "published",
        },
    }
)
"""Settings of `sample` that turn TACT-HMC into its ablations and its relatives.

With friction 1 and no thermostat the published step is θ ← θ − η ∇Ũ + N(0, 2η): SGLD with step 2η.
"""


@dataclass(frozen=True)
class Coupling:
    """λ(ξ): 1 for |ξ| ≤ ξ₀, else 1/λ = 1 + ((|ξ| − ξ₀) / (ξ₁ − ξ₀))ⁿ, with walls at ±W₀.

    Attributes
    ----------
    plateau, reach, power, wall
        ξ₀, ξ₁ (where T = 2), n and W₀; the defaults are those of [TACT] 5.1.
    """

    plateau: float = 1 / 3
    reach: float = 1.0
    power: float = 3.0
    wall: float = 5 / 3

    def __post_init__(self) -> None:
        if not (0 < self.plateau < self.reach and self.plateau < self.wall and self.power >= 1):
            raise SamplingError(
                "A coupling needs 0 < plateau < reach, plateau < wall and power from 1, not "
                f"{self}."
            )

    @property
    def hottest(self) -> float:
        """The temperature 1/λ at the walls."""
        return 1 / compiled.coupling(self.wall, self.plateau, self.reach, self.power)[0]


@dataclass(frozen=True)
class Hills:
    """Metadynamics: Gaussian hills that fill the free energy along ξ, one a look ([TACT] suppl. B).

    Attributes
    ----------
    height, width
        Of a hill, in units of energy (temperature 1) and of ξ.
    softening
        ΔT of the well-tempered form, in which a hill on a bias W shrinks by exp(−W / ΔT) and the
        bias converges to ΔT / (ΔT + 1) of the free energy. None is the published, plain form: it
        never stops building, and lags behind where θ is slow to warm and to cool.
    """

    height: float = 0.02
    width: float = 0.2
    softening: float | None = 4.0

    def __post_init__(self) -> None:
        if not (self.height > 0 and self.width > 0 and (self.softening or 1.0) > 0):
            raise SamplingError(f"Hills have positive sizes, not {self}.")


@dataclass(frozen=True, kw_only=True)
class TactSettings:
    """How TACT-HMC is run; see `sample`."""

    chains: int
    draws: int
    warmup: int
    thin: int
    step: float
    tempering_step: float
    friction: float
    tempering_friction: float
    inertia: float
    tempering_inertia: float
    tempering: bool
    thermostat: str | None
    bias: str | None
    bins: int
    hills: Hills
    coupling: Coupling
    integrator: str
    resample_every: int
    patience: int
    noise: tuple[float, float]
    threads: int | None

    def __post_init__(self) -> None:
        for name, least in (
            ("chains", 1), ("draws", 8), ("warmup", 0), ("thin", 1), ("bins", 2),
            ("resample_every", 0), ("patience", 1),
        ):  # fmt: skip
            whole(name, getattr(self, name), least)
        if self.threads is not None:
            whole("threads", self.threads, 1)
        for name in ("step", "tempering_step", "inertia", "tempering_inertia"):
            if not 0 < getattr(self, name) < np.inf:
                raise SamplingError(f"{name} must be positive, not {getattr(self, name)!r}.")
        for name in ("friction", "tempering_friction"):
            if not 0 <= getattr(self, name) < np.inf:
                raise SamplingError(f"{name} must not be negative: {getattr(self, name)!r}.")
        for name, values in (
            ("thermostat", (None, "scalar", "diagonal")),
            ("bias", (None, "force", "hills")),
            ("integrator", ("symmetric", "published")),
        ):
            if getattr(self, name) not in values:
                raise SamplingError(
                    f"There is no {name} {getattr(self, name)!r}.",
                    remedy=f"Use one of {', '.join(map(repr, values))}.",
                )

    def dynamics(self, *, learn: bool, offset: float) -> Dynamics:
        """For the compiled loop."""
        hills = self.hills
        # Whole numbers must not reach the loop as such: it would be compiled once more for them.
        return Dynamics(
            (float(self.step) ** 2, float(self.tempering_step) ** 2),
            (float(self.friction), float(self.tempering_friction)),
            (float(self.inertia), float(self.tempering_inertia)),
            float(self.coupling.plateau),
            float(self.coupling.reach),
            float(self.coupling.power),
            float(self.coupling.wall),
            self.tempering,
            self.thermostat is not None,
            self.integrator == "symmetric",
            {None: compiled.NO_BIAS, "force": compiled.FORCE, "hills": compiled.HILLS}[self.bias],
            learn,
            (
                float(hills.height),
                float(hills.width),
                np.inf if hills.softening is None else float(hills.softening),
            ),
            offset,
            (self.thin, self.resample_every),
        )

    def thermostat_means(self, noise: Array) -> tuple[Array, Array]:
        """Where z_θ and z_ξ should settle, and the standard errors of that, both of shape (2,).

        It is the friction with which a free particle's steps at the places of `noise` gain no
        kinetic energy on average: c + η V / 2 to first order ([TACT] 6) with V the mean weighted by
        λ² or λ'², infinite where the noise of a step is more than any friction can take up.

        Parameters
        ----------
        noise : shape (points, 4)
            As in `TactRun.noise`.
        """
        found = [
            self._settled(eta * variance, coupled**2, friction)
            for eta, friction, variance, coupled in (
                (self.step**2, self.friction, noise[:, 1], noise[:, 2]),
                (self.tempering_step**2, self.tempering_friction, noise[:, 0], noise[:, 3]),
            )
        ]
        return np.array([mean for mean, _ in found]), np.array([error for _, error in found])

    def _settled(self, noise: Array, square: Array, friction: float) -> tuple[float, float]:
        """One thermostat's mean and error, from η V and the squared coupling at each place."""
        told = np.isfinite(noise) & (square > 0)
        if not told.any():
            return friction, 0.0  # it is never coupled to anything
        noise, square = noise[told], square[told]

        def gain(z: float) -> Array:
            if self.integrator == "published":
                return (1 - square * z) ** 2 + square * (noise + 2 * friction) - 1
            kept = np.exp(-square * z)
            return kept**2 + (1 + kept) ** 2 * square * noise / 4 - np.exp(-2 * square * friction)

        top = square.sum() / (square**2).sum() if self.integrator == "published" else 700.0
        if gain(top).mean() >= 0:
            return np.inf, 0.0
        mean = float(root_scalar(lambda z: float(gain(z).mean()), bracket=(0.0, top)).root)
        slope = (gain(mean + 1e-6) - gain(mean)).mean() / 1e-6
        return mean, float(np.sqrt(np.mean(gain(mean) ** 2) / noise.size) / abs(slope))
