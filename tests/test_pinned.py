"""Numbers of the estimates on fixed inputs, held to what they were when the estimates were checked.

The other tests say that these numbers are right. This one says that no change alters them unseen:
set STANCT_UPDATE_GOLDEN=1 to write `golden/numbers.json` anew, then read the diff, and list what
changed in the changelog under "Numbers change".
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri

from stanct.common.errors import SamplingError
from stanct.estimates import bridge, thermodynamic, weighted
from stanct.estimates.averages import expectation, weighted_quantile
from stanct.estimates.copies import CopyEstimator, copy_log_weights
from stanct.estimates.ladder import LadderEstimator, equal_rejection
from stanct.estimates.mean_weight import log_mean_weight, mean_weight_evidence
from stanct.estimates.path import PathEstimator
from stanct.estimates.tours import Tours
from stanct.kernels import make_population
from stanct.path.base import Base
from stanct.path.bias import AnyBias, Bias, CopyBias, LadderBias, sigmoidal_ladder
from stanct.path.course import Course, beta_grid
from stanct.path.gaussian import GaussianBase, gaussian_moments, mixture_moments
from stanct.path.low_rank import LowRankBase
from stanct.path.mixture import MixtureBase
from stanct.runs import diagnostics, path_checks, verdicts
from stanct.runs.surveyed import AGAIN
from stanct.samplers import _rounds
from stanct.samplers._annealing import Annealing, _resampled
from stanct.samplers.ais import AIS

FILE = Path(__file__).parent / "golden" / "numbers.json"


def even(*shape: int, start: float = 0.5) -> np.ndarray:
    """Numbers spread evenly over (0, 1), in an order that looks random."""
    count = math.prod(shape)
    return ((start + 0.6180339887498949 * np.arange(1, count + 1)) % 1).reshape(shape)


def normal(*shape: int, start: float = 0.5) -> np.ndarray:
    return ndtri(even(*shape, start=start))


# A path from a wide to a narrow normal: δ = x²/2 · 3 − log 2, with a few draws of little weight.
DELTA = 1.5 * normal(3, 80) ** 2 - 0.7 + 0.2 * normal(3, 80, start=0.1)
BETA = even(3, 80, start=0.3)
OUTSIDE = np.where(even(200, start=0.7) < 0.1, np.inf, 1.5 * normal(200, start=0.2) ** 2 - 0.7)
BENT = Bias(np.array([0.0, 0.3, 1.0]), np.array([0.0, 0.4, 0.9]))
ATOM = Bias(BENT.beta, BENT.value, atom=0.2)
LADDER = LadderBias(np.array([0.0, 0.1, 0.5, 1.0]), np.array([0.0, 0.2, 0.3, 0.6]))
COPIES = CopyBias(BENT.beta, BENT.value, np.array([0.0, -0.3, 0.2]))
TOURS = Tours.after(even(3, 80, start=0.9) < 0.2)
BASES: dict[str, Base] = {
    "gaussian": GaussianBase(np.array([1.0, -2.0]), np.array([[2.0, 0.0], [0.5, 0.3]])),
    "diagonal": GaussianBase(np.array([1.0, -2.0]), np.diag([2.0, 0.3])),
    "low rank": LowRankBase(
        np.array([1.0, -2.0, 0.5]), np.array([2.0, 0.3, 1.0]),
        np.array([[0.6], [0.8], [0.0]]), np.array([1.7]),
    ),
    "mixture": MixtureBase.of(
        [3.0, 1.0],
        [GaussianBase(np.array([1.0, -2.0]), np.diag([2.0, 0.3])),
         GaussianBase(np.array([-5.0, 1.0]), np.array([[0.4, 0.0], [0.2, 0.9]]))],
    ),
}  # fmt: skip


def of_path(base_delta: np.ndarray, bias: AnyBias, tours: Tours | None) -> dict[str, Any]:
    found = PathEstimator(DELTA, base_delta, bias, tours)
    evidence = replace(found.evidence("joint"), warnings=("pareto_k",))
    grid = np.array([0.0, 0.2, 0.7, 1.0])
    inside = PathEstimator(DELTA, base_delta[np.isfinite(base_delta)], bias, tours)
    return {
        "evidence": evidence,
        "interval": evidence.interval,
        "base_error": evidence.base_error,
        "words": repr(evidence),
        "curve": found.curve(grid),
        "curve's words": repr(found.curve(grid)),
        "log_c": found.log_c,
        "share": found.share,
        "weights": [found.log_weights(0.5)[:, ::20], found.log_weights(1.0)[:, ::20]],
        "moments": found.delta_moments(grid),
        "running": found.running_log_z([10, 40, 80]),
        "course": asdict(inside.course(beta_grid(7))),
        "influence": [part.ravel()[::25] for part in found.influence(0.6)],
        "integral": thermodynamic.path_integral(found, _beta(bias), "joint")
        if base_delta.size
        else None,
    }


def _beta(bias: AnyBias) -> np.ndarray:
    """β of the draws as the bias has them: on rungs, or now and then at the atom."""
    if isinstance(bias, LadderBias):
        return bias.beta[(4 * BETA).astype(int)]
    return (
        np.where(BETA < 0.15, 0.0, BETA)
        if bias.atom
        else np.append(BETA[:, :-1], np.ones((3, 1)), 1)
    )


def of_paths() -> dict[str, Any]:
    none = np.zeros(0)
    return {
        "chains": of_path(none, BENT, None),
        "base": of_path(OUTSIDE, BENT, None),
        "atom": of_path(OUTSIDE, ATOM, TOURS),
        "ladder": of_path(OUTSIDE, LADDER, None),
    }


def of_draws() -> dict[str, Any]:
    values, weights = normal(3, 80, 2, start=0.6), -0.5 * DELTA
    variables = {"x": values, "s": values[..., 0] ** 2}
    found = expectation(values, weights, 0.5, tours=TOURS)
    pairs = expectation(values, weights, 1.0, 2)
    rows = weighted.resampled_rows(weights, None, 7), weighted.resampled_rows(weights, 50, 7)
    return {
        "expectation": [found, pairs, repr(found)],
        "scalar": weighted.expect(variables, weights, lambda v: v["s"] + 1),
        "quantiles": weighted_quantile(values, weights, np.array([0.0, 0.05, 0.5, 1.0])),
        "summary": weighted.summary(variables, weights, tours=TOURS),
        "rows": [one.ravel()[::10] for one in rows],
        "frame": weighted.frame({"x": values[:, :3], "s": variables["s"][:, :3]}),
        "mean weight": mean_weight_evidence(-DELTA, 4, 3, "ais"),
        "mean weights": log_mean_weight(np.where(even(50, 3) < 0.1, -np.inf, -DELTA[:, :50].T)),
        "tours": [TOURS.count, TOURS.lengths, TOURS.error(DELTA), TOURS.reached(BETA, 0.95)],
    }


def of_ladders() -> dict[str, Any]:
    betas = np.array([0.0, 0.15, 0.4, 0.7, 1.0])
    rungs = 1.5 * normal(3, 60, 5) ** 2 / (1 + 3 * betas) - 0.7
    holes = rungs.copy()
    holes[..., 0][even(3, 60, start=0.7) < 0.2] = np.inf
    out: dict[str, Any] = {"spread": equal_rejection(betas, np.array([0.1, 0.0, 0.5, 0.2]), 4)}
    for name, delta in (("whole", rungs), ("holes", holes)):
        found = LadderEstimator(betas, delta)
        out[name] = {
            "evidence": [found.evidence("pt", way) for way in ("bridge", "forward", "backward")],
            "curve": found.curve(),
            "running": found.running_log_z([10, 60]),
            "steps": found.steps,
            "integral": thermodynamic.ladder_integral(betas, delta, "pt"),
        }
    return out


def of_copies() -> dict[str, Any]:
    delta, fixed = 1.5 * normal(3, 40, 3) ** 2 - 0.7, np.array([0.2, 0.6, 1.0])
    out = {}
    for name, given in (("free", None), ("fixed", fixed)):
        found = CopyEstimator(delta, OUTSIDE, COPIES, given)
        out[name] = {
            "evidence": found.evidence("copies"),
            "log_c": found.log_c,
            "weights": found.log_weights.ravel()[::30],
            "influence": [part.ravel()[::25] for part in found.influence],
            "course": asdict(found.course(beta_grid(7))),
        }
    beta = np.where(even(3, 40, 3) < 0.1, 1.0, even(3, 40, 3, start=0.2))
    return {**out, "weights": copy_log_weights(delta, beta, COPIES).ravel()[::30]}


def of_bridges() -> dict[str, Any]:
    z = normal(50, 2, start=0.2)
    draws = np.stack([normal(3, 40), normal(3, 40, start=0.9) ** 2], axis=-1)

    def log_density(x: np.ndarray) -> np.ndarray:
        return np.where(x[:, 1] > -1, -0.5 * np.square(x).sum(axis=1), -np.inf)

    later = draws[:, 20:]
    pair = bridge.bridges(
        draws[:, :20].reshape(-1, 2), later, log_density(later.reshape(-1, 2)).reshape(3, 20),
        log_density, z,
    )  # fmt: skip
    return {
        "evidence": [
            bridge.swapped_evidence(pair, "bridge"),
            bridge.swapped_evidence(pair, "b", 9.0),
        ],
        "parts": [(one.errors, one.pareto_k, one.even_share, one.share) for one in pair],
        "halves": [bridge.halves(7), bridge.reshuffled_halves(50, np.random.default_rng(1))],
        "normal": [
            bridge.fitted_normal(draws[0]).covariance,
            bridge.fitted_normal(draws[0, :5]).covariance,
        ],
    }


def of_biases() -> dict[str, Any]:
    delta = np.array([-40.0, -1.0, 0.0, 0.3, 50.0])
    uniforms = even(2, 5, start=0.15)
    high = 0.2 + 0.8 * uniforms
    grid = beta_grid(60)
    curve, prior = -np.log1p(30 * grid), np.cos(3 * grid) - 1
    out: dict[str, Any] = {
        "sigmoidal": sigmoidal_ladder(6),
        "grid": [len(beta_grid()), beta_grid()[:3]],
        "strata": thermodynamic._stratified(
            uniforms, uniforms > 0.3, np.array([[0, 0, 2, 2, 2]] * 2), np.array([0.5, 0.3, 0.2])
        ),
        "linear": [
            Bias.linear(2.0)(0.3),
            CopyBias.linear(2.0)(0.3),
            LadderBias.linear(grid, 2.0)(0.3),
        ],
        "coarse": [
            asdict(Bias.from_curve(grid, curve)),
            asdict(Bias.from_curve(grid, curve, tolerance=1e-9, most=5)),
        ],
        "coarse copies": asdict(CopyBias.from_curves(grid, curve, prior)),
        "path of copies": asdict(COPIES.of_the_path),
    }
    for name, bias in (("bent", BENT), ("atom", ATOM), ("ladder", LADDER)):
        out[name] = [
            bias.log_mass(delta),
            bias.log_weights(delta, 0.4),
            bias.log_weights(delta, 1.0),
            bias.log_zeta,
        ]
        if isinstance(bias, Bias):
            out[name] += [
                bias.sample_beta(np.stack([delta] * 2), even(2, 2, 5)),
                bias.sample_beta(delta, uniforms),
                bias.sample_beta(delta, high),
                bias.atom_shares(delta),
            ]
    course = Course.weighted(beta_grid(9), -0.1 * OUTSIDE, OUTSIDE)
    flat = Course.weighted(beta_grid(9), np.zeros(20), np.ones(20))
    out["course"] = [asdict(course), course.log_density(0.5), flat.log_density(0.5)]
    out["course's bias"] = [
        asdict(course.bias()),
        asdict(course.bias(0.5)),
        asdict(course.bias(tolerance=0.01)),
    ]
    return out


def of_bases() -> dict[str, Any]:
    out = {}
    for name, base in BASES.items():
        z = normal(4, base.dimension)
        out[name] = {
            "x": base.unwhiten(z),
            "z": base.whiten(base.unwhiten(z)),
            "log_density": base.log_density(base.unwhiten(z)),
            "delta": base.delta(z, -np.arange(4.0)),
            "draws": base.draw(np.random.default_rng(2), 3),
            "moments": [base.mean, base.covariance, base.log_det_scale],
            "arrays": [np.shape(array) for array in base.arrays().values()],
        }
        if base.is_gaussian:
            points, weights = normal(60, base.dimension, start=0.35), even(60)
            new = base.refitted(
                points * np.linspace(0.1, 2, base.dimension), weights, least_shrinkage=0.3
            )
            out[name]["refitted"] = [new.mean, new.covariance, base.dense().covariance]
    points = normal(40, 3) @ np.array([[1.0, 0.9, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.0]])
    thin = LowRankBase.from_points(
        normal(80, 1) * np.ones(4) + 0.3 * normal(80, 4, start=0.8), rank=1
    )
    out["moments"] = [gaussian_moments(points), gaussian_moments(points, weights=even(40))]
    out["mixed"] = mixture_moments(
        [0.0, -1.0], [np.zeros(2), np.ones(2)], [np.eye(2), 2 * np.eye(2)]
    )
    out["thin"] = [thin.mean, thin.covariance, thin.stretch]
    return out


def of_rounds() -> dict[str, Any]:
    base = BASES["gaussian"]
    done = _rounds.Round(base, BENT, normal(3, 80, 2, start=0.6), DELTA, OUTSIDE)
    new = _rounds.refit_base(done)
    course = _rounds.course_under(done, new)
    population = make_population(normal(64, 2))
    population.log_weights[:] = 6 * normal(64)
    last: Any = SimpleNamespace(random=lambda: 1 - 2**-53)
    return {
        "base": [new.mean, new.covariance],
        "course": [course.log_z[::20], course.speed[::20]],
        "bias": [asdict(done.course.bias()), asdict(done.course.bias(0.5))],
        "acceptance": _rounds.acceptance_by_beta(np.array([[4, 0, 2], [3.0, 0.0, 0.5]])),
        "resampled": [
            (part := _resampled(population, rng)).z[::9] for rng in (np.random.default_rng(1), last)
        ],
        "kept mean": part.log_weights[:2],
        "outside": _outside(base),
        "inside": _rounds.draws_inside(
            _vanishing(lambda x: np.where(x[:, 0] > 0, 0.0, -np.inf)),
            base,
            3,
            np.random.default_rng(1),
        ),
        "refused": [_refusal(plan) for plan in ((50, 4), (32, 1), (10, 1))],
    }  # fmt: skip


def _vanishing(log_densities: Callable[[np.ndarray], np.ndarray]) -> Any:
    return SimpleNamespace(density=SimpleNamespace(log_densities=log_densities))


def _outside(base: Base) -> str:
    target = _vanishing(lambda x: np.full(len(x), -np.inf))
    with pytest.raises(SamplingError) as caught:
        _rounds.draws_inside(target, base, 3, np.random.default_rng(1))
    return str(caught.value)


def _refusal(plan: tuple[int, int]) -> str:
    with pytest.raises(SamplingError) as caught:
        Annealing.check(AIS(resample=True), SimpleNamespace(draws=plan[0], chains=plan[1]), None)  # pyright: ignore[reportArgumentType]
    return str(caught.value)


def of_checks() -> dict[str, Any]:
    """Every check on either side of its threshold, with its words."""
    estimator = PathEstimator(DELTA, OUTSIDE, BENT)
    evidence = estimator.evidence("joint")
    alone = PathEstimator(DELTA, np.zeros(0), BENT).evidence("joint")
    z = normal(3, 80, 2)
    still = np.broadcast_to(np.array([[0.05], [0.5], [0.95]]), (3, 80))
    back = np.tile(np.array([0.05, 0.95, 0.5, 0.02]), (3, 20))
    flags = {"divergent__": 5, "treedepth__": 5, "rejected__": 20}

    def statistics(extra: int) -> dict[str, np.ndarray]:
        out = {name: np.zeros((1, 100)) for name in (*flags, "n_leapfrog__")}
        for name, most in flags.items():
            out[name][0, : most + extra] = 10
        out["n_leapfrog__"] += 7
        return out

    weights, pilots = np.array([0.9, 0.001]), np.array([0.98, 0.02])
    modes = [
        {"weight": weights, "std_error": np.array(errors), "pilot_weight": pilots}
        for errors in ([0.01, 0.001], [0.01, 0.01])
    ]
    stopped = [
        diagnostics.length_check(
            80, 100, evidence, {"target_se": 0.1, "reason": why}, {"bootstrap": 2}, None
        )
        for why in ("reached", "limit", "warnings", "stalled", "interrupted", "max_seconds")
    ]
    untold = [
        diagnostics.length_check(80, wanted, evidence, told, {}, limit)
        for wanted in (80, 100)
        for told in (None, {"target_se": None})
        for limit in (None, 0, 2.5)
    ]
    return {
        "stopped": stopped,
        "untold": untold,
        "agreement": [diagnostics.agreement(gap, 0.5) for gap in (0.0, 1e-10, 1.5, 1.51)],
        "thermodynamic": diagnostics.agreement_check(evidence, alone),
        "path": [
            path_checks.path_checks(estimator, evidence, z, beta, settings, rao_blackwell=alone)
            for beta, settings in ((BETA, {}), (still, {"bootstrap": 3}), (back, {}))
        ],
        "few": path_checks.path_checks(estimator, evidence, z, BETA, {}),
        "base": [asdict(path_checks.base_check(z[:, :n], -DELTA[:, :n])) for n in (8, 80)],
        "base of many": asdict(path_checks.base_check(normal(12, 20, 2), 0.1 * normal(12, 20))),
        "support": [diagnostics.support_check(np.array([np.inf] * k + [0.0] * 2)) for k in (2, 3)],
        "weights": [
            diagnostics.mean_weight_checks(_with(evidence, value), "particles", "More.")
            for value in (0, 1)
        ],
        "counts": diagnostics.transition_counts(statistics(0)),
        "transitions": [
            tuple(diagnostics.transition_checks(statistics(k), 10, "joint")) for k in (0, 1)
        ],
        "shallow": tuple(
            diagnostics.transition_checks({"divergent__": np.zeros((1, 9))}, None, "own")
        ),
        "modes": [diagnostics.modes_check(one, AGAIN) for one in modes],
        "round trips": [path_checks.round_trips(beta) for beta in (BETA, back, back[:, 1:])],
        "refit": [diagnostics.refit({}), diagnostics.refit({"bootstrap": 4})],
        "order": [one.name for one in verdicts.failures(stopped + untold)],
    }  # fmt: skip


def _with(evidence: Any, high: int) -> Any:
    low = {"effective_size": 100.0, "pareto_k": 0.7, "std_error": 0.5}
    bad = {"effective_size": 99.0, "pareto_k": 0.71, "std_error": 0.51}
    return replace(evidence, **(bad if high else low), weight_share=0.5)


ALL: dict[str, Callable[[], Any]] = {
    "paths": of_paths,
    "draws": of_draws,
    "ladders": of_ladders,
    "copies": of_copies,
    "bridges": of_bridges,
    "biases": of_biases,
    "bases": of_bases,
    "rounds": of_rounds,
    "checks": of_checks,
}


def plain(value: Any) -> Any:
    """Numbers, words, lists and mappings alone."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, pd.DataFrame):
        return plain({**value.to_dict("list"), "rows": [str(row) for row in value.index]})
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, Sequence):
        return [plain(one) for one in value]
    number: Any = value
    words = isinstance(number, bool) or not math.isfinite(number)
    return str(number) if words else float(number)


def differences(found: Any, held: Any, place: str = "") -> Iterator[str]:
    """Where numbers differ by more than rounding, or anything else differs."""
    if isinstance(found, float) and isinstance(held, float | int):
        if not math.isclose(found, held, rel_tol=1e-6, abs_tol=1e-9):
            yield f"{place}: {found!r}, held {held!r}"
    elif isinstance(found, dict) and isinstance(held, dict) and found.keys() == held.keys():
        for key in found:
            yield from differences(found[key], held[key], f"{place}.{key}")
    elif isinstance(found, list) and isinstance(held, list) and len(found) == len(held):
        for k, pair in enumerate(zip(found, held, strict=True)):
            yield from differences(*pair, f"{place}[{k}]")
    elif found != held:
        yield f"{place}: {found!r}, held {held!r}"


@pytest.mark.skipif(
    not version("arviz").startswith("0."), reason="held with the effective sizes of ArviZ 0.x"
)
@pytest.mark.parametrize("name", ALL)
def test_numbers_are_those_that_were_checked(name: str) -> None:
    found = plain(ALL[name]())
    held = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if os.environ.get("STANCT_UPDATE_GOLDEN") == "1":
        held[name] = found
        FILE.write_text(json.dumps(held, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert not list(differences(found, held[name], name))
