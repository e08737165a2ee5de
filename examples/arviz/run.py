"""ArviZ's functions on a tempered run and on a long run of NUTS, side by side.

For radon and for eight schools, each beside a smaller model, the script prints what `az.summary`,
`az.loo`, `az.compare` and power-scaling (`az.psens`, in ArviZ 1.x `az.psense`) find, and two
statistics of the predictions that `az.plot_ppc` draws. NUTS runs programs with log likelihoods and
log priors that were written by hand. `to_arviz` computes its own. Errors are the standard
deviation over eight half chains, each of which ArviZ gets alone, divided by the root of eight.

    python run.py [--draws 4000] [--seed 1] [--out arviz.png] [--only radon]
"""

from __future__ import annotations

import argparse
import importlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.image import imread
from scipy.stats import t as student_t

import stanct
from stanct.engines.embedded import Nuts, run_nuts

EXAMPLES = Path(__file__).resolve().parent.parent
CHAINS = 4
mpl.use("Agg")


def arviz() -> Any:
    """ArviZ, whose import warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("arviz")


@dataclass(frozen=True)
class Model:
    """A program without generated quantities, and these quantities by hand.

    Attributes
    ----------
    predicts
        Stan code of the predictions, which both runs have.
    by_hand
        Stan code of `log_lik` and `lprior`, which NUTS alone has.
    """

    program: str
    data: dict[str, Any]
    predicts: str
    by_hand: str
    shown: tuple[str, ...]


def _schools() -> dict[str, Model]:
    folder = EXAMPLES / "eight_schools"
    data = json.loads((folder / "eight_schools.data.json").read_text(encoding="utf-8"))
    lines = """
      array[J] real y_rep = normal_rng({0}, sigma);
    """
    hand = """
      vector[J] log_lik;
      for (j in 1:J) log_lik[j] = normal_lpdf(y[j] | {0}, sigma[j]);
      real lprior = normal_lpdf(mu | 0, 5){1};
    """
    pooled = """
      data { int J; vector[J] y; vector[J] sigma; }
      parameters { real mu; }
      model { mu ~ normal(0, 5); y ~ normal(mu, sigma); }
    """
    prior = " + cauchy_lpdf(tau | 0, 5) + log(2) + std_normal_lpdf(theta_raw)"
    return {
        "hierarchy": Model(
            (folder / "non_centred.stan").read_text(encoding="utf-8"),
            data,
            lines.format("theta"),
            hand.format("theta[j]", prior),
            ("mu", "tau", "theta"),
        ),
        "one effect": Model(
            pooled, data, lines.format("rep_vector(mu, J)"), hand.format("mu", ""), ("mu",)
        ),
    }


def _radon() -> dict[str, Model]:
    folder = EXAMPLES / "radon"
    data = json.loads((folder / "radon.data.json").read_text(encoding="utf-8"))
    lines = """
      array[N] real log_radon_rep = normal_rng({0}, epsilon);
    """
    hand = """
      vector[N] log_lik = {0};
      for (n in 1:N) log_lik[n] = normal_lpdf(log_radon[n] | log_lik[n], epsilon);
      real lprior = {1} + cauchy_lpdf(epsilon | 0, 2.5) + log(2);
    """
    counties = (
        "cauchy_lpdf(sigma_alpha | 0, 2.5) + cauchy_lpdf(sigma_beta | 0, 2.5) + 2 * log(2) + "
        "std_normal_lpdf(mu_alpha) + std_normal_lpdf(mu_beta) + std_normal_lpdf(n_alpha) + "
        "std_normal_lpdf(n_beta)"
    )
    line = """
      data { int N; vector[N] floor_measure; vector[N] log_uranium; vector[N] log_radon; }
      parameters { real mu_alpha; vector[2] beta; real<lower=0> epsilon; }
      model {
        mu_alpha ~ std_normal(); beta ~ std_normal(); epsilon ~ cauchy(0, 2.5) T[0, ];
        log_radon ~ normal(mu_alpha + floor_measure * beta[1] + log_uranium * beta[2], epsilon);
      }
    """
    place = "{0} + floor_measure * beta[1] + log_uranium * beta[2]"
    priors = "std_normal_lpdf(mu_alpha) + std_normal_lpdf(beta)"
    return {
        "counties": Model(
            (folder / "radon.stan").read_text(encoding="utf-8"),
            data,
            lines.format(place.format("alpha[county]")),
            hand.format(place.format("alpha[county]"), counties),
            ("mu_alpha", "beta", "sigma_alpha", "epsilon"),
        ),
        "one line": Model(
            line,
            {name: data[name] for name in ("N", "floor_measure", "log_uranium", "log_radon")},
            lines.format(place.format("mu_alpha")),
            hand.format(place.format("mu_alpha"), priors),
            ("mu_alpha", "beta", "epsilon"),
        ),
    }


SETS: dict[str, Callable[[], dict[str, Model]]] = {"eight schools": _schools, "radon": _radon}


def by_nuts(model: Model, draws: int, seed: int) -> Any:
    """ArviZ's container of four chains of NUTS, by ArviZ's own `from_dict`."""
    text = f"{model.program}\ngenerated quantities {{ {model.predicts} {model.by_hand} }}"
    target = stanct.temper(text).target(model.data)
    rng = np.random.default_rng(seed)
    starts = rng.uniform(-1, 1, (CHAINS, target.density.dimension))
    recipe, nuts = target.density_recipe, Nuts(target_accept=0.95)
    found, _ = run_nuts(recipe, starts, seed=seed, warmup=1000, draws=draws, nuts=nuts)
    observed = predicted(model)
    groups = {
        "posterior": {name: found.variables[name] for name in model.shown},
        "log_likelihood": {observed: found.variables["log_lik"]},
        "posterior_predictive": {observed: found.variables[f"{observed}_rep"]},
        "observed_data": {observed: np.array(model.data[observed])},
    }
    az, prior = arviz(), {"log_prior": {"log_prior": found.variables["lprior"]}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if is_new(az):
            return az.from_dict({**groups, **prior})
        container = az.from_dict(**groups)
        container.add_groups(prior)
        return container


def by_tempering(model: Model, seed: int) -> Any:
    """ArviZ's container of a run of the default method."""
    text = f"{model.program}\ngenerated quantities {{ {model.predicts} }}"
    run = stanct.temper(text).sample(model.data, draws=2500, seed=seed, progress=False)
    print(f"  {run.evidence}")
    return run.to_arviz(seed=seed)


def predicted(model: Model) -> str:
    """Name of the data that the model predicts."""
    return "y" if "y" in model.data else "log_radon"


def is_new(az: Any) -> bool:
    """Whether this is ArviZ 1.x."""
    return not az.__version__.startswith("0.")


def numbers(models: Mapping[str, Model], containers: Mapping[str, Any]) -> dict[str, float]:
    """What ArviZ's functions find, row label to number."""
    az = arviz()
    found: dict[str, float] = {}
    for name, model in models.items():
        container = containers[name]
        table = az.summary(container, var_names=list(model.shown), kind="stats", round_to="none")
        for label in list(table.index)[:5]:
            for column in ("mean", "sd"):
                found[f"summary, {name}: {column} of {label}"] = float(table.loc[label, column])
        loo = az.loo(container)
        found[f"loo, {name}: elpd"] = float(loo.elpd if is_new(az) else loo["elpd_loo"])
        found[f"loo, {name}: p"] = float(loo.p if is_new(az) else loo["p_loo"])
        first = model.shown[0]
        scaled = az.psense if is_new(az) else az.psens
        sensitivity = scaled(container, var_names=[first])
        value = sensitivity[first] if is_new(az) else sensitivity
        found[f"psense, {name}: prior, {first}"] = float(np.ravel(value)[0])
        rows = np.asarray(container["posterior_predictive"][predicted(model)])
        found[f"plot_ppc, {name}: mean of predictions"] = float(rows.mean())
        found[f"plot_ppc, {name}: sd within data sets"] = float(rows.std(axis=-1).mean())
    exactly = {"round_to": "none"} if is_new(az) else {}
    table = az.compare(dict(containers), **exactly)
    first, second = models
    column = "elpd" if "elpd" in table else "elpd_loo"
    gap = table.loc[first, column] - table.loc[second, column]
    found[f"compare: elpd of {first} − {second}"] = float(gap)
    return found


def halves(containers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The containers of half a chain each."""
    parts = []
    for chain in range(CHAINS):
        for half in range(2):
            part = {}
            for name, one in containers.items():
                length = one["posterior"].sizes["draw"] // 2
                rows = slice(half * length, (half + 1) * length)
                part[name] = one.isel(chain=[chain], draw=rows)
            parts.append(part)
    return parts


def with_errors(
    models: Mapping[str, Model], containers: Mapping[str, Any]
) -> dict[str, tuple[float, float]]:
    """Row label to number and standard error; the error from half chains, each taken alone."""
    alone = [numbers(models, part) for part in halves(containers)]
    return {
        label: (value, float(np.std([one[label] for one in alone], ddof=1) / np.sqrt(len(alone))))
        for label, value in numbers(models, containers).items()
    }


def picture(az: Any, container: Any, path: Path) -> np.ndarray:
    """What `plot_ppc` draws, as an image."""
    if is_new(az):
        az.plot_ppc_dist(container, num_samples=100).savefig(path)
    else:
        axes = az.plot_ppc(container, num_pp_samples=100, random_seed=1)
        np.ravel(axes)[0].figure.savefig(path, dpi=80)
    return imread(path)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="ArviZ on tempered runs and on long runs of NUTS.")
    parser.add_argument("--draws", type=int, default=4000, help="draws of each chain of NUTS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=SETS, nargs="+", default=list(SETS))
    parser.add_argument("--out", type=Path, default=Path("arviz.png"), help="the picture")
    options = parser.parse_args()
    az = arviz()
    print(f"ArviZ {az.__version__}")
    scores, panels = [], []
    for title in options.only:
        print(f"\n{title}")
        models = SETS[title]()
        tempered = {name: by_tempering(one, options.seed) for name, one in models.items()}
        long = {name: by_nuts(one, options.draws, options.seed) for name, one in models.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = zip(
                with_errors(models, tempered).items(),
                with_errors(models, long).values(),
                strict=True,
            )
            print(f"  {'':<44} {'stanct':>20} {'NUTS':>20} {'z':>5}")
            for (label, (value, error)), (other, its) in rows:
                z = (value - other) / np.hypot(error, its)
                scores.append(z)
                both = f"{value:10.4f} ± {error:7.4f} {other:10.4f} ± {its:7.4f}"
                print(f"  {label:<44} {both} {z:5.1f}")
            first = next(iter(models))
            panels.append([picture(az, each[first], options.out) for each in (tempered, long)])
    largest = float(np.abs(scores).max())
    # z is about t-distributed, with some ten degrees of freedom.
    limit = float(student_t.isf(0.005 / len(scores), 10))
    print(f"\nlargest |z| of {len(scores)}: {largest:.1f}; chance exceeds {limit:.1f} in 1 of 100")
    figure = mpl.figure.Figure(figsize=(10, 4 * len(panels)), layout="constrained")
    grid = figure.subplots(len(panels), 2, squeeze=False)
    for title, row, images in zip(options.only, grid, panels, strict=True):
        for axes, image, who in zip(row, images, ("stanct", "NUTS"), strict=True):
            axes.imshow(image)
            axes.set_axis_off()
            axes.set_title(f"{title}, {who}")
    figure.savefig(options.out, dpi=100)
    print(f"The picture is in {options.out}.")


if __name__ == "__main__":
    main()
