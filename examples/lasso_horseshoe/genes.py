"""Reads gene expression data, splits them, screens the genes and standardises them."""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path

import numpy as np

# The file in which each data set is published. README.md says where to get it.
FILES = {
    "leukemia": "golub.RData",
    "colon": "alon.RData",
    "ovarian": "ovarian.json.zip",
    "prostate": "prostate.json.zip",
}


def read(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read expressions, shape (samples, genes), and classes 0 or 1, shape (samples,).

    Raises
    ------
    SystemExit
        The file is missing, or the package that reads it is not installed.
    """
    path = folder / FILES[name]
    if not path.is_file():
        raise SystemExit(f"There is no {path}. README.md says where to get {name}.")
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            content = json.loads(archive.read(archive.namelist()[0]))
        return np.array(content["x"], float), np.array(content["y"], int)
    try:
        import rdata
    except ImportError:
        raise SystemExit(f"To read {path.name}, first run: pip install rdata") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rdata warns of R attributes that it leaves out
        content = rdata.read_rda(path)
    if name == "leukemia":
        return np.asarray(content["golub"], float).T, np.asarray(content["golub.cl"]).astype(int)
    alon = content["alon"]
    return np.asarray(alon["x"], float), (np.asarray(alon["y"]) == "t").astype(int)


def simulate(samples: int, genes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate data of the same kind: genes correlated in groups of five, of which two matter."""
    rng = np.random.default_rng(seed)
    groups = rng.standard_normal((samples, -(-genes // 5)))
    x = 0.7 * np.repeat(groups, 5, axis=1)[:, :genes] + 0.7 * rng.standard_normal((samples, genes))
    logits = 3 * groups[:, 0] - 3 * groups[:, 1]
    return x, (rng.random(samples) < 1 / (1 + np.exp(-logits))).astype(int)


def split(x: np.ndarray, y: np.ndarray, genes: int, seed: int) -> dict:
    """Hold out a fifth of each class, and return the data block of the programs.

    The genes kept are those with the largest |t| between the classes. Both the t test and the
    standardisation use the training samples only.
    """
    rng = np.random.default_rng(seed)
    held_out = np.zeros(y.size, bool)
    for value in (0, 1):
        members = rng.permutation(np.flatnonzero(y == value))
        held_out[members[: max(1, round(0.2 * members.size))]] = True
    train, classes = x[~held_out], y[~held_out]
    one, other = train[classes == 1], train[classes == 0]
    noise = np.sqrt(one.var(axis=0, ddof=1) / len(one) + other.var(axis=0, ddof=1) / len(other))
    t = np.abs(one.mean(axis=0) - other.mean(axis=0)) / np.where(noise > 0, noise, np.inf)
    best = np.argsort(-t)[:genes]
    mean, sd = train[:, best].mean(axis=0), train[:, best].std(axis=0, ddof=1)
    return {
        "n": int((~held_out).sum()),
        "n_test": int(held_out.sum()),
        "d": int(best.size),
        "x": (train[:, best] - mean) / sd,
        "y": classes,
        "x_test": (x[held_out][:, best] - mean) / sd,
        "y_test": y[held_out],
    }
