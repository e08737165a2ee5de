"""Decoders and encoders of importance weighted autoencoders, as four archives of arrays.

A folder holds `decoder_params.npz`, `encoder_h_params.npz`, `encoder_mean_params.npz` and
`encoder_std_params.npz`, in the format of the authors' repository: y = f(x W + b), with weights
`W0`, `W2`, … and biases `b0`, `b2`, … of the layers. `decoder_training.py` writes such folders,
too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import expit, logsumexp

Layer = tuple[np.ndarray, np.ndarray]
FILES = {"decoder": (0, 2, 4), "encoder_h": (0, 2), "encoder_mean": (0,), "encoder_std": (0,)}
SEED_OF_THE_PAPER, IMAGES_OF_THE_PAPER = 201702, 1000
BOUND_DRAWS = 100  # draws of the encoder in log ζ, as in the authors' notebooks


@dataclass(frozen=True)
class Network:
    """A decoder p(y | x) of codes x, and the encoder that gives the base for each image.

    Attributes
    ----------
    decoder, encoder_h, encoder_mean, encoder_std
        Layers (weights of shape (inputs, outputs), biases). Hidden layers are followed by tanh, the
        decoder by a logistic function, and the last layer of the standard deviations by exp.
    """

    decoder: tuple[Layer, ...]
    encoder_h: tuple[Layer, ...]
    encoder_mean: tuple[Layer, ...]
    encoder_std: tuple[Layer, ...]

    @classmethod
    def read(cls, folder: Path) -> Network:
        """The network in a folder.

        Raises
        ------
        SystemExit
            A file is missing.
        """
        found = {}
        for name, numbers in FILES.items():
            path = folder / f"{name}_params.npz"
            if not path.is_file():
                raise SystemExit(
                    f"There is no {path}. README.md says where to get trained decoders, and "
                    "decoder_training.py trains some."
                )
            with np.load(path, encoding="latin1") as arrays:
                found[name] = tuple((arrays[f"W{n}"], arrays[f"b{n}"].ravel()) for n in numbers)
        return cls(**found)

    def write(self, folder: Path) -> None:
        """Write the four archives."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, numbers in FILES.items():
            arrays = {}
            for number, (weights, bias) in zip(numbers, getattr(self, name), strict=True):
                arrays |= {f"W{number}": weights, f"b{number}": bias}
            np.savez(folder / f"{name}_params.npz", **arrays)

    @property
    def dimension(self) -> int:
        """Length of a code."""
        return self.decoder[0][0].shape[0]

    @property
    def pixels(self) -> int:
        """Number of pixels, a square."""
        return self.decoder[-1][1].size

    def logits(self, codes: np.ndarray) -> np.ndarray:
        """Log odds of the pixels, shape (..., pixels)."""
        for weights, bias in self.decoder[:-1]:
            codes = np.tanh(codes @ weights + bias)
        weights, bias = self.decoder[-1]
        return codes @ weights + bias

    def base(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the codes of images, each of shape (n, dimension)."""
        hidden = images.astype(float)
        for weights, bias in self.encoder_h:
            hidden = np.tanh(hidden @ weights + bias)
        (mean,), (log_sd,) = self.encoder_mean, self.encoder_std
        return hidden @ mean[0] + mean[1], np.exp(hidden @ log_sd[0] + log_sd[1])

    def generated(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Codes and images drawn from the network, the first `count` of a thousand.

        The generator, its seed and the order of the draws are those of the authors' notebooks, so
        that their weights give their images.
        """
        rng = np.random.RandomState(SEED_OF_THE_PAPER)
        codes = rng.normal(size=(IMAGES_OF_THE_PAPER, self.dimension))
        uniforms = rng.uniform(size=(IMAGES_OF_THE_PAPER, self.pixels))
        if count > IMAGES_OF_THE_PAPER:
            raise SystemExit(f"There are {IMAGES_OF_THE_PAPER} images, not {count}.")
        chances = expit(self.logits(codes[:count]))
        return codes[:count], (uniforms[:count] < chances).astype(int)

    def log_joint(self, codes: np.ndarray, images: np.ndarray) -> np.ndarray:
        """log p(x, y), shape (n,)."""
        logits = self.logits(codes)
        log_prior = -0.5 * np.square(codes).sum(-1) - 0.5 * self.dimension * np.log(2 * np.pi)
        return log_prior + (images * logits - np.logaddexp(0, logits)).sum(-1)

    def bounds(self, images: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on log p(y) from the encoder alone: with one draw and with a hundred, shape (n,).

        The second is the importance-weighted bound. It serves as log ζ.
        """
        mean, sd = self.base(images)
        log_weights = np.empty((BOUND_DRAWS, len(images)))
        for row in log_weights:
            noise = rng.standard_normal(mean.shape)
            log_q = -0.5 * (np.square(noise) + np.log(2 * np.pi)) - np.log(sd)
            row[:] = self.log_joint(mean + sd * noise, images) - log_q.sum(axis=1)
        return log_weights.mean(axis=0), logsumexp(log_weights, axis=0) - np.log(BOUND_DRAWS)
