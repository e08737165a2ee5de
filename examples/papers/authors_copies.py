"""Programs of Nemeth et al. as they published them, on the machine of their file: β fixed, or not.

    git clone https://github.com/chris-nemeth/pseudo-extended-mcmc-code
    python authors_copies.py pseudo-extended-mcmc-code

It needs CmdStan. Errors of E[x] are compared with exact ones, and with those of our copies.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path

import cmdstanpy
import numpy as np
from common import EXAMPLES, BoltzmannMachine

import stanct
from stanct.engines.homes import find

FOLDER = "Section_4.2-Boltzmann_machine_relaxations"
BETAS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)


def program(folder: Path, kind: str) -> str:
    """One of their programs, with its one array in today's syntax."""
    text = (folder / f"boltzmann_pseudo-extended{kind}.stan").read_text(encoding="utf-8")
    return text.replace("vector[n_dim_r]  x[P];", "array[P] vector[n_dim_r] x;")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repository", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    folder, home = options.repository / FOLDER, find()
    if home is None:
        raise SystemExit("There is no CmdStan here: stanct install-cmdstan")
    file = np.load(folder / "relaxations.npz")
    factor, biases = file["Q"], file["b"]
    weights = factor @ factor.T
    np.fill_diagonal(weights, 0.0)
    machine = BoltzmannMachine(weights, biases)
    signs = machine.exact()

    def rmse(x: np.ndarray, beta: np.ndarray | float) -> float:
        """That of E[x] from copies of shape (draws, 2, dimension), weighted by π^(1 − β)."""
        y = x @ factor.T + biases
        log_target = (np.logaddexp(y, -y) - np.log(2)).sum(-1)
        log_target -= 0.5 * np.square(x).sum(-1)
        log_weights = (1 - beta) * log_target
        share = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        error = (share[..., None] * x).sum(axis=1).mean(axis=0) - factor.T @ signs.mean
        return float(np.sqrt(np.mean(np.square(error))))

    logging.getLogger("cmdstanpy").setLevel(logging.ERROR)
    cmdstanpy.set_cmdstan_path(str(home.path))
    data = {"n_dim_b": len(biases), "n_dim_r": factor.shape[1], "q": factor.tolist(),
            "b": biases.tolist(), "P": 2}  # fmt: skip
    with tempfile.TemporaryDirectory() as made:
        for kind, betas in (("_fixedBeta", BETAS), ("", (None,))):
            path = Path(made) / f"copies{kind}.stan"
            path.write_text(program(folder, kind), encoding="utf-8")
            theirs = cmdstanpy.CmdStanModel(stan_file=path)
            for beta in betas:
                errors = []
                for seed in range(1, options.runs + 1):
                    fit = theirs.sample(
                        data | ({} if beta is None else {"beta": beta}), chains=1,
                        iter_warmup=5000, iter_sampling=5000, seed=seed, show_progress=False,
                    )  # fmt: skip
                    own = fit.stan_variable("beta") if beta is None else beta
                    errors.append(rmse(fit.stan_variable("x"), own))
                told = ", ".join(f"{error:.2f}" for error in errors)
                print(
                    f"β = {beta or 'estimated'}: RMSE of E[x] by their program {told}", flush=True
                )
    exact = machine.relaxed(signs).mean
    base = wide_base(machine)
    for beta in BETAS:
        errors = ours(machine, base, exact, beta, options.runs)
        told = ", ".join(f"{error:.2f}" for error in errors)
        print(f"β = {beta}: RMSE of E[x] by our copies {told}", flush=True)


def wide_base(machine: BoltzmannMachine) -> stanct.GaussianBase:
    """The base of our copies in `relaxations.py`, which starts them here."""
    fit = machine.mean_field(np.random.default_rng(0))
    covariance = fit.base.covariance
    wide = covariance + np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    return stanct.GaussianBase.from_covariance(fit.base.mean, wide)


def ours(
    machine: BoltzmannMachine, base: stanct.GaussianBase, exact: np.ndarray, beta: float, runs: int
) -> list[float]:
    """RMSEs of E[x] by two copies that follow powers of the target."""
    model = stanct.temper(EXAMPLES.parent / "stan_models" / "boltzmann" / "boltzmann.stan")
    copies = stanct.PseudoExtended(copies=2, fixed_beta=(beta,) * 2, instrument="target")
    errors = []
    for seed in range(1, runs + 1):
        run = model.sample(
            machine.stan_data(), copies, base=base, log_zeta=0.0, chains=1, warmup=5000,
            draws=5000, engine="embedded", seed=seed, progress=False,
        )  # fmt: skip
        x = run.variables["x"].reshape(-1, machine.dimension)
        log_weights = run.target_log_weights.ravel()
        share = np.exp(log_weights - log_weights.max())
        errors.append(float(np.sqrt(np.mean((share @ x / share.sum() - exact) ** 2))))
    return errors


if __name__ == "__main__":
    main()
