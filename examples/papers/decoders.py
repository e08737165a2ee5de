"""Evidence of images under a decoder (Graham & Storkey 2017, section 7.4), image by image.

`--data FOLDER` names the folder `mnist-iwae` of the authors' repository, with the trained decoder
and encoder of an importance weighted autoencoder (50, 200, 200, 784). Without it the decoder has
random weights and is small, and the base is the prior. Images are drawn from the decoder itself,
so that bidirectional Monte Carlo brackets log p(y).
"""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
from common import BLUE, EXAMPLES, GREEN, INK, ORANGE, PURPLE, Made, Work, panels, present, titled
from scipy.special import expit, logsumexp

import stanct

PROGRAM = EXAMPLES.parent / "stan_models" / "decoder" / "decoder.stan"
SAMPLERS = {"ais": ORANGE, "gibbs": BLUE, "joint": PURPLE}
SMALL = (4, 8, 8, 20)  # sizes of the random decoder
BASE_DRAWS = 2000


class Decoder:
    """Weights of p(y | x), as Stan's program wants them, and the encoder's base for an image."""

    def __init__(self, folder: Path | None) -> None:
        self.encoder: list[Any] | None = None
        if folder is None:
            rng = np.random.default_rng(0)
            pairs = itertools.pairwise(SMALL)
            layers = [(rng.normal(0, 2 / np.sqrt(n), (n, m)), rng.normal(0, 0.3, m))
                      for n, m in pairs]  # fmt: skip
        else:
            layers = _layers(folder, "decoder", (0, 2, 4))
            self.encoder = [
                _layers(folder, name, numbers)
                for name, numbers in (
                    ("encoder_h", (0, 2)), ("encoder_mean", (0,)), ("encoder_std", (0,)))
            ]  # fmt: skip
        (w1, b1), (w2, b2), (w3, b3) = layers
        self.data: dict[str, Any] = {
            "N": 1, "D": len(w1), "H1": b1.size, "H2": b2.size, "P": b3.size, "W1": w1.T,
            "W2": w2.T, "W3": w3.T, "b1": b1, "b2": b2, "b3": b3,
        }  # fmt: skip

    def log_joint(self, x: np.ndarray, image: np.ndarray) -> np.ndarray:
        """log p(x, y) for codes x of shape (n, D)."""
        d = self.data
        hidden = np.tanh(np.tanh(x @ d["W1"].T + d["b1"]) @ d["W2"].T + d["b2"])
        logits = hidden @ d["W3"].T + d["b3"]
        log_prior = -0.5 * np.square(x).sum(axis=1) - 0.5 * x.shape[1] * np.log(2 * np.pi)
        return log_prior + (image * logits - np.logaddexp(0, logits)).sum(axis=1)

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """A code and an image."""
        d = self.data
        x = rng.standard_normal(d["D"])
        hidden = np.tanh(d["W2"] @ np.tanh(d["W1"] @ x + d["b1"]) + d["b2"])
        return x, (rng.random(d["P"]) < expit(d["W3"] @ hidden + d["b3"])).astype(int)

    def base(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviations of the base: the encoder's, or those of the prior."""
        if self.encoder is None:
            return np.zeros(self.data["D"]), np.ones(self.data["D"])
        hidden = image.astype(float)
        for weights, bias in self.encoder[0]:
            hidden = np.tanh(hidden @ weights + bias)
        (mean,), (log_sd,) = self.encoder[1:]
        return hidden @ mean[0] + mean[1], np.exp(hidden @ log_sd[0] + log_sd[1])


def _layers(folder: Path, name: str, numbers: tuple[int, ...]) -> list[tuple[Any, Any]]:
    """Weights and biases of a network, in double precision."""
    path = folder / f"{name}_params.npz"
    if not path.is_file():
        raise SystemExit(f"There is no {path}. README.md says where to get the folder mnist-iwae.")
    with np.load(path, encoding="latin1") as arrays:
        return [(arrays[f"W{n}"].astype(float), arrays[f"b{n}"].astype(float).ravel())
                for n in numbers]  # fmt: skip


@functools.cache
def decoder(folder: str | None) -> Decoder:
    """A decoder, once for each process."""
    return Decoder(None if folder is None else Path(folder))


def image_evidence(folder: str | None, image: int, short: bool, seed: int) -> dict[str, Any]:
    """Part: log p of one generated image by three samplers, and its bracket."""
    known = decoder(folder)
    rng = np.random.default_rng([seed, image])
    code, pixels = known.draw(rng)
    mean, sd = known.base(pixels)
    x = mean + sd * rng.standard_normal((BASE_DRAWS, mean.size))
    log_q = (-0.5 * np.square((x - mean) / sd) - np.log(sd) - 0.5 * np.log(2 * np.pi)).sum(axis=1)
    bound = float(logsumexp(known.log_joint(x, pixels) - log_q) - np.log(BASE_DRAWS))
    data = known.data | {"y": pixels[None]}
    model = stanct.temper(PROGRAM)
    common: dict[str, Any] = {
        "base": stanct.GaussianBase(mean, np.diag(sd)), "seed": int(rng.integers(2**30)),
        "progress": False,
    }  # fmt: skip
    length = 150 if short else 500
    methods: dict[str, tuple[stanct.Method, dict[str, int]]] = {
        "ais": (stanct.AIS(temperatures=50 if short else 500), {"chains": 1, "draws": 64}),
        "gibbs": (stanct.Gibbs(bootstrap=0), {"chains": 2, "draws": length, "warmup": 150}),
        "joint": (stanct.Joint(bootstrap=0), {"chains": 2, "draws": length, "warmup": 150}),
    }
    found: dict[str, Any] = {"image": image, "encoder": bound}
    for name, (method, size) in methods.items():
        run = model.sample(data, method, engine="embedded", log_zeta=bound, **size, **common)
        found |= {name: run.evidence.log_z, f"{name} SE": run.evidence.std_error,
                  f"{name} gradients": run.gradients}  # fmt: skip
    bracket = model.bidirectional(
        data, {"x": code[None]}, stanct.AIS(temperatures=100 if short else 1000),
        chains=1, draws=64, log_zeta=bound, **common,
    )  # fmt: skip
    return found | {"lower": bracket.lower, "upper": bracket.upper}


def figure_4(work: Work) -> Made:
    """log p of generated images against the middle of their bracket, by three samplers."""
    folder = None if work.data is None else str(work.data)
    jobs = [
        {"folder": folder, "image": image, "short": work.quick, "seed": work.seed}
        for image in range(work.times(1000, 3))
    ]
    rows = present(work.parts.all(image_evidence, jobs))
    middle = np.array([(r["lower"] + r["upper"]) / 2 for r in rows])
    order = np.argsort(middle)
    figure, axes = panels(1, 2, (9.5, 3.4))
    places = np.arange(len(rows))
    for side in ("lower", "upper"):
        values = np.array([r[side] for r in rows]) - middle
        axes[0, 0].plot(places, values[order], "_", color=INK, ms=9, label=f"BDMC, {side}")
    for k, (name, colour) in enumerate(SAMPLERS.items()):
        values = np.array([r[name] for r in rows]) - middle
        error = 1.96 * np.array([r[f"{name} SE"] for r in rows])
        axes[0, 0].errorbar(places + 0.15 * (k - 1), values[order], error[order], fmt="o", ms=3,
                            lw=0.8, color=colour, label=name)  # fmt: skip
    axes[0, 0].set_xticks(places if len(rows) < 12 else places[:: len(rows) // 10])
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    titled(axes[0, 0], "(a) log p(y) − middle of the bracket", "image", "nats")
    totals = {name: float(np.mean([r[name] for r in rows])) for name in
              ("encoder", *SAMPLERS, "lower", "upper")}  # fmt: skip
    gaps = {name: totals[name] - float(middle.mean()) for name in ("encoder", *SAMPLERS)}
    colours = [GREEN, *SAMPLERS.values()]
    axes[0, 1].bar(list(gaps), list(gaps.values()), color=colours, width=0.6)
    axes[0, 1].axhspan(totals["lower"] - middle.mean(), totals["upper"] - middle.mean(), color=INK,
                       alpha=0.15, lw=0)  # fmt: skip
    axes[0, 1].axhline(0, color=INK, lw=0.8)
    titled(axes[0, 1], "(b) the mean over images; grey: bracket", "", "nats")
    kind = "the trained MNIST decoder" if folder else "a small decoder with RANDOM weights"
    says = (
        f"{len(rows)} images of {kind}. Mean log p: "
        + ", ".join(f"{name} {value:.3f}" for name, value in totals.items())
        + ". Here `encoder` is the importance-weighted estimate from the base alone, and `lower` "
        "and `upper` are the two ends of bidirectional Monte Carlo."
    )
    inside = {
        name: sum(r["lower"] - 2 * r[f"{name} SE"] <= r[name] <= r["upper"] + 2 * r[f"{name} SE"]
                  for r in rows) for name in SAMPLERS
    }  # fmt: skip
    verdict = (
        " Of these images "
        + ", ".join(f"{count} with {name}" for name, count in inside.items())
        + " are inside their bracket, give or take two standard errors. The ends of a bracket "
        "are estimates, too, and may cross."
    )
    return Made(rows, figure, work.judged(says, verdict))
