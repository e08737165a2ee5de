"""Evidence of images under decoders (Graham & Storkey 2017, section 7.4), many images at once.

`--data FOLDER` names the folder `data` of the authors' repository, with two importance weighted
autoencoders of sizes 50, 200, 200, 784: `mnist-iwae` and `omni-iwae`. It may also name the folder
of one network, such as `decoder_training.py` writes. Without it a small network is trained on drawn
strokes. Images are drawn from the decoder itself, so that bidirectional Monte Carlo brackets
log p(y). What Figures 4, 6 and 7 show, and the settings, are those of the authors' notebooks.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    BLUE,
    EXAMPLES,
    INK,
    ORANGE,
    PURPLE,
    QUIET,
    RED,
    Made,
    Work,
    panels,
    short_numbers,
    titled,
)
from decoder_chains import Rows, annealed, gibbs, joint, running_log_z, simulated
from decoder_nets import Network
from decoder_training import PLANS, strokes, train
from matplotlib.figure import Figure
from scipy.special import logsumexp

import stanct
from stanct.path.bias import Bias, LadderBias, sigmoidal_ladder

PROGRAM = EXAMPLES.parent / "stan_models" / "decoder" / "decoder.stan"
FOLDERS = {"mnist-iwae": "MNIST", "omni-iwae": "Omniglot"}
STROKES = "drawn strokes"
# Step sizes of the notebooks for AIS, the two temperings and joint tempering, and the scale of u.
STEPS = {"mnist-iwae": (0.3, 0.25, 0.15, 8.0), "omni-iwae": (0.4, 0.4, 0.4, 5.0)}
# The bracket of all thousand images in nats an image, read off the picture of Graham (2017).
BRACKETS = {"mnist-iwae": (-95.4033, -95.3480), "omni-iwae": (-109.8598, -109.8541)}
CHUNK, PARTICLES, CHAINS, RUNGS = 50, 16, 2, 1000
LOOKS = {"simulated tempering": (ORANGE, "--"), "Gibbs": (BLUE, ":"), "joint": (PURPLE, "-")}


@functools.cache
def network(folder: str | None) -> Network:
    """The network in a folder, or one trained on strokes, once for each process."""
    if folder is not None:
        return Network.read(Path(folder))
    return train(strokes(4000, np.random.default_rng(1)), PLANS["strokes"], seed=1)[0]


def folders(work: Work) -> dict[str | None, str]:
    """The folders of the networks that there are, and what their images are called."""
    if work.data is None:
        return {None: STROKES}
    below: dict[str | None, str] = {str(work.data / name): title for name, title in FOLDERS.items()
             if (work.data / name / "decoder_params.npz").is_file()}  # fmt: skip
    return below or {str(work.data): FOLDERS.get(work.data.name, work.data.name)}


def chunk_estimates(
    folder: str | None, method: str, first: int, count: int, length: int, seed: int
) -> dict[str, Any]:
    """Part: log p of some generated images by one method, with processor seconds.

    `length` is the number of temperatures of AIS and of the bracket, and that of draws otherwise.
    """
    net = network(folder)
    codes, images = (values[first:] for values in net.generated(first + count))
    single, log_zeta = net.bounds(images, np.random.default_rng([first, 7]))
    anneal, step, step_joint, scale = STEPS.get(Path(folder or "").name, STEPS["mnist-iwae"])
    rng = np.random.default_rng([seed, first, length])
    chains = PARTICLES if method in ("AIS", "bracket") else CHAINS
    rows = Rows.of(net, images, log_zeta, chains)
    started = time.process_time()
    found: dict[str, Any] = {"method": method, "folder": folder, "length": length, "first": first}
    if method == "encoder":
        return found | {"single": single, "log_zeta": log_zeta}
    if method in ("AIS", "bracket"):
        found["log_z"], found["error"] = _pooled(annealed(rows, length, anneal, rng), log_zeta, 1)
        if method == "bracket":
            start = (codes.repeat(chains, axis=0) - rows.mean) / rows.sd
            back = annealed(rows, length, anneal, rng, start)
            found["upper"], found["upper_error"] = _pooled(back, log_zeta, -1)
    else:
        ladder = sigmoidal_ladder(RUNGS)
        moves: dict[str, Callable[[], Iterator[np.ndarray]]] = {
            "simulated tempering": lambda: simulated(rows, RUNGS, step, rng),
            "Gibbs": lambda: gibbs(rows, step, rng),
            "joint": lambda: joint(rows, scale, step_joint, rng),
        }
        bias = LadderBias.linear(ladder, 0.0) if method[0] == "s" else Bias.linear(0.0)
        ends = np.unique(np.geomspace(10, length, 25).astype(int))
        line, both = running_log_z(moves[method](), bias, ends, chains)
        found |= {"ends": ends, "line": line + log_zeta, "log_z": line[-1] + log_zeta,
                  "error": 0.5 * np.abs(both[0] - both[1])}  # fmt: skip
    return found | {"seconds": time.process_time() - started, "gradients": rows.gradients}


def _pooled(log_weights: np.ndarray, log_zeta: np.ndarray, way: int) -> tuple[Any, Any]:
    """log p from the particles of each image, and the standard error by the delta method."""
    w = log_weights.reshape(log_zeta.size, -1)
    mean = logsumexp(w, axis=1) - np.log(w.shape[1])
    spread = np.exp(w - mean[:, None]).std(axis=1, ddof=1) / np.sqrt(w.shape[1])
    return log_zeta + way * mean, spread


def package_estimates(folder: str | None, image: int, short: bool, seed: int) -> dict[str, Any]:
    """Part: log p of one image by stanct itself, on the Stan program with compiled kernels."""
    net = network(folder)
    _, images = net.generated(image + 1)
    (w1, b1), (w2, b2), (w3, b3) = net.decoder
    data = {
        "N": 1, "D": net.dimension, "H1": b1.size, "H2": b2.size, "P": b3.size, "W1": w1.T,
        "W2": w2.T, "W3": w3.T, "b1": b1, "b2": b2, "b3": b3, "y": images[-1:],
    }  # fmt: skip
    data = {key: value.astype(float) if key[0] in "Wb" else value for key, value in data.items()}
    mean, sd = (value[0] for value in net.base(images[-1:]))
    log_zeta = float(net.bounds(images[-1:], np.random.default_rng(7))[1][0])
    run = stanct.temper(PROGRAM).sample(
        data, stanct.Gibbs(bootstrap=0), engine="embedded", log_zeta=log_zeta, chains=2,
        draws=150 if short else 500, warmup=150, base=stanct.GaussianBase(mean, np.diag(sd)),
        seed=seed, progress=False,
    )  # fmt: skip
    return {"image": image, "folder": folder, "log_z": run.bare_evidence.log_z,
            "error": run.bare_evidence.std_error, "gradients": run.gradients}  # fmt: skip


def pooled(parts: list[dict[str, Any]], key: str = "log_z") -> np.ndarray:
    """Values of all images, from the chunks of one method."""
    return np.concatenate([part[key] for part in sorted(parts, key=lambda p: p["first"])], axis=-1)


def chunks(work: Work, lengths: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """The jobs of all networks, methods and chunks of images."""
    images = work.times(1000, 20)
    return [{"folder": folder, "method": method, "first": first,
             "count": min(CHUNK, images - first), "length": length, "seed": work.seed}
            for folder in folders(work) for method, length in lengths
            for first in range(0, images, CHUNK)]  # fmt: skip


def figure_4(work: Work) -> Made:
    """Mean log p of generated images against processor time, by four methods, and its bracket."""
    short = work.quick
    draws = {"simulated tempering": 1000, "Gibbs": 1000, "joint": 2500}
    lengths = [("encoder", 1), ("bracket", 100 if short else 500)]
    lengths += [("AIS", n) for n in ((25, 50) if short else (50, 100, 200))]
    lengths += [(name, n // 10 if short else n) for name, n in draws.items()]
    own = [{"folder": folder, "image": image, "short": short, "seed": work.seed + image}
           for folder in folders(work) for image in range(1 if short else 2)]  # fmt: skip
    jobs = chunks(work, lengths)
    work.parts.whole((chunk_estimates, jobs), (package_estimates, own))
    found = work.parts.every(chunk_estimates, jobs)
    checked = work.parts.every(package_estimates, own)
    titles = folders(work)
    figure, axes = panels(1, len(titles), (1.5 + 4.2 * len(titles), 3.8))
    rows, says = [], []
    for one, (folder, title) in zip(axes[0], titles.items(), strict=True):
        mine = [part for part in found if part["folder"] == folder]
        table = _panel(one, mine, folder, title)
        rows += table
        says.append(_sentences(mine, table, title))
        own = [c for c in checked if c["folder"] == folder]
        gibbs_of = pooled([p for p in mine if p["method"] == "Gibbs"])
        says.append(
            "stanct's own Gibbs run on the Stan program gives for the first images "
            + ", ".join(f"{c['log_z']:.2f} ± {c['error']:.2f} (here {gibbs_of[c['image']]:.2f})"
                        for c in own) + "."
        )  # fmt: skip
    names = axes[0, 0].get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=3 * axes.shape[1], frameon=False,
                  fontsize=8)  # fmt: skip
    verdict = " ".join(_verdicts(rows, titles))
    return Made(rows, figure, work.judged(" ".join(says), " " + verdict))


def figure_4_thousand(work: Work) -> Made:
    """Shorter runs on as many images as the paper has, beside the bracket of the thesis."""
    short = work.quick
    draws = {"simulated tempering": 300, "Gibbs": 300, "joint": 500}
    lengths = [("encoder", 1), ("AIS", 10 if short else 50)]
    lengths += [(name, n // 10 if short else n) for name, n in draws.items()]
    titles, jobs = folders(work), chunks(work, lengths)
    found = work.parts.every(chunk_estimates, jobs)
    figure, axes = panels(1, len(titles), (1.5 + 4.2 * len(titles), 3.8))
    rows, says = [], []
    for one, (folder, title) in zip(axes[0], titles.items(), strict=True):
        table = _panel(one, [p for p in found if p["folder"] == folder], folder, title)
        rows += table
        told = f"{table[0]['count']:,} images of {title}, mean log p:"
        ends = BRACKETS.get(Path(folder or "").name)
        if ends:
            told += f" the bracket of the thesis is {ends[0]:.4f} to {ends[1]:.4f};"
        says.append(told + " " + ", ".join(
            f"{r['method']} {r['log p']:.3f} ± {r['standard error']:.3f}"
            + (f" ({_outside(r, ends):.1f} standard errors outside it)" if ends else "")
            for r in table if np.isfinite(r["standard error"])) + ".")  # fmt: skip
    names = axes[0, 0].get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    verdict = (
        f" AIS has 50 temperatures and {PARTICLES} particles, Gibbs and simulated tempering have "
        f"300 draws of {CHAINS} chains and joint tempering 500, without a warm-up. Bars are 95 % "
        "intervals. The bracket is that of the thesis, read off its picture."
    )
    return Made(rows, figure, work.judged(" ".join(says), verdict))


def _outside(row: dict[str, Any], ends: tuple[float, float]) -> float:
    """How many standard errors a mean is outside a bracket."""
    return max(ends[0] - row["log p"], row["log p"] - ends[1], 0.0) / row["standard error"]


def _panel(one: Any, mine: list[dict[str, Any]], folder: str | None, title: str) -> list[Any]:
    """Draw the panel of one network, and return the rows of its table."""
    by_kind: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for part in mine:
        by_kind.setdefault((part["method"], part["length"]), []).append(part)
    by_name = {name: parts for (name, _), parts in by_kind.items()}
    encoder, bracket = by_name["encoder"], by_name.get("bracket")
    count = pooled(encoder, "log_zeta").size
    rows = [
        {"images": title, "count": count, "method": name, "length": 1 if name[-2:] == " 1" else 100,
         "log p": float(pooled(encoder, key).mean()), "standard error": np.nan,
         "gradients": 0, "processor seconds": np.nan}
        for name, key in (("encoder, 1", "single"), ("encoder, 100", "log_zeta"))
    ]  # fmt: skip
    known = BRACKETS.get(Path(folder or "").name)
    if bracket:
        for name, key, error in (("BDMC, lower", "log_z", "error"),
                                 ("BDMC, upper", "upper", "upper_error")):  # fmt: skip
            value = pooled(bracket, key)
            rows.append(_row(title, name, bracket, value, pooled(bracket, error)))
        known = rows[-2]["log p"], rows[-1]["log p"]
    for end, name, colour in zip(
        known or (), ("BDMC, lower", "BDMC, upper"), (RED, INK), strict=False
    ):
        one.axhline(end, color=colour, lw=1, ls="-.", label=name)
    for (name, length), parts in by_kind.items():
        if name in ("encoder", "bracket"):
            continue
        value, error = pooled(parts), pooled(parts, "error")
        row = _row(title, name, parts, value, error) | {"length": length}
        rows.append(row)
        if name == "AIS":
            first = not any(r["method"] == "AIS" for r in rows[:-1])
            one.errorbar(row["processor seconds"], row["log p"], 1.96 * row["standard error"],
                         fmt="s", ms=4, color=QUIET, label="AIS" if first else None)  # fmt: skip
            continue
        colour, dash = LOOKS[name]
        ends = np.array(parts[0]["ends"])
        line = pooled(parts, "line").mean(axis=1)
        one.plot(
            row["processor seconds"] * ends / ends[-1], line, color=colour, ls=dash, label=name
        )
        one.errorbar(row["processor seconds"], line[-1], 1.96 * row["standard error"], fmt=".",
                     color=colour, lw=1.2)  # fmt: skip
    middle = np.mean(known or [row["log p"] for row in rows if row["method"] == "AIS"])
    one.set_ylim(middle - 0.5, middle + 0.25)
    one.set_xscale("log")
    short_numbers(one)
    titled(one, f"{title}, {count:,} images", "processor seconds", "log p of an image, mean")
    return rows


def _row(
    title: str, name: str, parts: list[dict[str, Any]], value: np.ndarray, error: np.ndarray
) -> dict[str, Any]:
    """The mean over images, whose chains are independent of each other."""
    return {
        "images": title, "count": value.size, "method": name, "length": parts[0]["length"],
        "log p": float(value.mean()),
        "standard error": float(np.sqrt(np.square(error).sum()) / value.size),
        "gradients": sum(part["gradients"] for part in parts),
        "processor seconds": sum(part["seconds"] for part in parts),
    }  # fmt: skip


def _sentences(mine: list[dict[str, Any]], table: list[dict[str, Any]], title: str) -> str:
    """What one panel says in words."""
    named = {}
    for row in table:
        named[row["method"]] = row  # of AIS, the longest run
    texts = [f"{table[0]['count']} images of {title}, mean log p:"]
    texts.append(", ".join(
        f"{name} {row['log p']:.3f}"
        + (f" ± {row['standard error']:.3f}" if np.isfinite(row["standard error"]) else "")
        + (f" ({row['length']} temperatures)" if name == "AIS" else "")
        for name, row in named.items()) + ".")  # fmt: skip
    bracket = [part for part in mine if part["method"] == "bracket"]
    low = pooled(bracket) - 3 * pooled(bracket, "error") - 0.02
    high = pooled(bracket, "upper") + 3 * pooled(bracket, "upper_error") + 0.02
    inside = []
    for name in LOOKS:
        own = [part for part in mine if part["method"] == name]
        value, error = pooled(own), 3 * pooled(own, "error")
        inside.append(f"{name} {np.mean((value >= low - error) & (value <= high + error)):.0%}")
    texts.append("Of the images, inside their bracket within three standard errors: "
                 + ", ".join(inside) + ".")  # fmt: skip
    return " ".join(texts)


def _verdicts(rows: list[dict[str, Any]], titles: dict[str | None, str]) -> list[str]:
    """What the encoder leaves, and how the picture differs from the paper's."""
    texts = []
    for title in titles.values():
        mine = {r["method"]: r for r in rows if r["images"] == title}
        gap = mine["BDMC, upper"]["log p"] - mine["encoder, 100"]["log p"]
        left = mine["BDMC, upper"]["log p"] - mine["Gibbs"]["log p"]
        texts.append(
            f"For {title} the encoder's bound with 100 draws is {gap:.2f} nats below the upper "
            f"end, and Gibbs within {abs(left):.2f} of it."
        )
    temperatures = sorted({r["length"] for r in rows if r["method"] == "AIS"})
    texts.append(
        "Bars are 95 % intervals. Of the three temperings Gibbs takes the least time, and AIS has "
        "smaller errors than they have. The error of an image comes from two chains: three of such "
        "errors hold the truth in 80 % of cases even if all is right, so that the shares in the "
        "brackets, which have errors of their own, show neither errors that are too small nor a "
        "bias. The bracket has 500 temperatures, and the paper's 10,000, which would take twenty "
        "times as long. The thesis has means of ten runs on all thousand images, bars of three "
        "standard errors, and AIS at 50 to 2,000 temperatures. Ours has one run on "
        f"{rows[0]['count']} images, and AIS at "
        f"{', '.join(map(str, temperatures[:-1]))} and {temperatures[-1]} temperatures."
    )
    return texts


def generated_images(work: Work, name: str) -> Made:
    """A thousand images that a decoder generates, in columns of twenty-five."""
    folder = None if work.data is None else work.data
    if folder is not None:
        if (folder / name / "decoder_params.npz").is_file():
            folder = folder / name
        elif not (folder / "decoder_params.npz").is_file():
            raise SystemExit(
                f"Neither {folder / name} nor {folder} has a decoder_params.npz. README.md says "
                "where to get trained decoders, and decoder_training.py trains some."
            )
    title = STROKES if folder is None else FOLDERS.get(folder.name, folder.name)
    net = network(None if folder is None else str(folder))
    count = work.times(1000, 100)
    _, images = net.generated(count)
    single, log_zeta = net.bounds(images, np.random.default_rng(7))
    side, high = round(net.pixels**0.5), min(25, count)
    wide = -(-count // high)
    sheet = np.zeros((high * side, wide * side))
    for k, image in enumerate(images):
        row, column = (k % high) * side, (k // high) * side
        sheet[row : row + side, column : column + side] = image.reshape(side, side)
    figure = Figure(figsize=(sheet.shape[1] / 110, sheet.shape[0] / 110))
    figure.figimage(1 - sheet, cmap="gray", vmin=0, vmax=1)
    rows = [
        {"image": k, "pixels": int(on), "bound, 1 draw": float(a), "bound, 100 draws": float(b)}
        for k, (on, a, b) in enumerate(zip(images.sum(axis=1), single, log_zeta, strict=True))
    ]
    says = (
        f"{count} images that the decoder of {title} generates. The encoder's bound on log p of an "
        f"image is {single.mean():.2f} with one draw and {log_zeta.mean():.2f} with a hundred, on "
        f"average; {images.mean():.1%} of the pixels are on."
    )
    verdict = (
        " The authors' notebooks draw their images in the same order and with the same seed. The "
        "first author's thesis shows the same thousand images in the same order, equal to these in "
        "every pixel."
        if title in FOLDERS.values()
        else " The decoder is a stand-in: only the kind of picture is the paper's."
    )
    return Made(rows, figure, work.judged(says, verdict))


def figure_6(work: Work) -> Made:
    """Images from the first decoder, MNIST's."""
    return generated_images(work, "mnist-iwae")


def figure_7(work: Work) -> Made:
    """Images from the second decoder, Omniglot's."""
    return generated_images(work, "omni-iwae")
