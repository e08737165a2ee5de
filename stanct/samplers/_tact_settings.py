"""Settings of TACT-HMC: coupling λ(ξ), hills, steps, and the thermostat means they imply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.common.roots import root_between
from stanct.common.settings import Choice, Flag, Instance, Numbers, Real, Whole
from stanct.kernels import tact as compiled
from stanct.kernels.tact import Dynamics

VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "tact": {},
        "no_tempering": {"tempering": False},
        "no_thermostat": {"thermostat": None},
        "sgnht": {"tempering": False},
        "extended_hamiltonian": {"thermostat": None, "bias": "hills"},
        "sghmc": {"tempering": False, "thermostat": None},
        "sgld": {
            "tempering": False,
            "thermostat": None,
            "friction": 1.0,
            "integrator": "published",
        },
    }
)
"""Settings of `TACT` that turn TACT-HMC into its ablations and related samplers.

``extended_hamiltonian`` has the Langevin moves and the learned bias of Gobbo & Leimkuhler (2015),
for gradients without noise. With friction 1 and no thermostat, the published step is
θ ← θ − η ∇Ũ + N(0, 2η): SGLD with step 2η.
"""


@dataclass(frozen=True)
class Coupling:
    """λ(ξ): 1 for |ξ| ≤ ξ₀, else 1/λ = 1 + ((|ξ| − ξ₀) / (ξ₁ − ξ₀))ⁿ, with walls at ±W₀.

    Attributes
    ----------
    plateau, reach, power, wall
        ξ₀, ξ₁ (where T = 2), n and W₀. The defaults are those of [TACT] 5.1.
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
    """Metadynamics: one Gaussian hill per look fills the free energy along ξ ([TACT] suppl. B).

    Attributes
    ----------
    height, width
        Height and width of a hill, in units of energy (temperature 1) and of ξ.
    softening
        ΔT of the well-tempered form. There a hill on a bias W shrinks by exp(−W / ΔT), and the bias
        converges to ΔT / (ΔT + 1) of the free energy. None selects the published, plain form. Its
        bias never stops growing, and it lags behind where θ is slow to warm and to cool.
    """

    height: float = 0.02
    width: float = 0.2
    softening: float | None = 4.0

    def __post_init__(self) -> None:
        if not (self.height > 0 and self.width > 0 and (self.softening or 1.0) > 0):
            raise SamplingError(f"Hills have positive sizes, not {self}.")


@dataclass(frozen=True, kw_only=True)
class TactSettings:
    """Settings of the dynamics of TACT-HMC; `TACT` documents the fields."""

    thin: Annotated[int, Whole(1)] = 10
    step: Annotated[float, Real(0)] = 0.1
    tempering_step: Annotated[float, Real(0)] = 0.05
    friction: Annotated[float, Real(0, closed=True)] = 0.1
    tempering_friction: Annotated[float, Real(0, closed=True)] = 0.1
    inertia: Annotated[float, Real(0)] = 1.0
    tempering_inertia: Annotated[float, Real(0)] = 1.0
    tempering: Annotated[bool, Flag()] = True
    thermostat: Annotated[str | None, Choice("scalar", "diagonal", "full")] = "scalar"
    bias: Annotated[str | None, Choice("force", "hills")] = "force"
    bins: Annotated[int, Whole(2)] = 100
    hills: Annotated[Hills, Instance(Hills, "stanct.Hills(...)")] = Hills()
    coupling: Annotated[Coupling, Instance(Coupling, "stanct.Coupling(...)")] = Coupling()
    integrator: Annotated[str, Choice("symmetric", "published")] = "symmetric"
    resample_every: Annotated[int, Whole(0)] = 0
    patience: Annotated[int, Whole(1)] = 50
    noise: Annotated[tuple[float, float], Numbers(0, count=2)] = (0.0, 0.0)

    def dynamics(self, *, learn: bool, offset: float) -> Dynamics:
        """Settings of the dynamics for the compiled loop."""
        hills = self.hills
        # Integers become floats, because other types would compile the loop again.
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
        """Expected means of z_θ and z_ξ and their standard errors, both of shape (2,).

        With them, steps of a free particle at the points of `TactRun.noise` gain no energy on
        average: to first order c + η V / 2 ([TACT] 6). They are infinite where no friction can
        absorb the noise.
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
        """Mean and error of one thermostat, from η V and the squared coupling at each point."""
        told = np.isfinite(noise) & (square > 0)
        if not told.any():
            return friction, 0.0  # the thermostat is never coupled to anything
        noise, square = noise[told], square[told]

        def gain(z: float) -> Array:
            if self.integrator == "published":
                return (1 - square * z) ** 2 + square * (noise + 2 * friction) - 1
            kept = np.exp(-square * z)
            return kept**2 + (1 + kept) ** 2 * square * noise / 4 - np.exp(-2 * square * friction)

        top = square.sum() / (square**2).sum() if self.integrator == "published" else 700.0
        if gain(top).mean() >= 0:
            return np.inf, 0.0
        mean = root_between(lambda z: float(gain(z).mean()), 0.0, top, tolerance=2e-12)
        slope = (gain(mean + 1e-6) - gain(mean)).mean() / 1e-6
        return mean, float(np.sqrt(np.mean(gain(mean) ** 2) / noise.size) / abs(slope))
