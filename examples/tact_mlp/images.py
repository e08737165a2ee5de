"""Fashion-MNIST from a folder, or synthetic images for trying out the script."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# Debian's package dataset-fashion-mnist puts the four files here.
FOLDER = Path("/usr/share/datasets/fashion-mnist")
CLASSES, PIXELS = 10, 784


@dataclass(frozen=True)
class Images:
    """Images and their labels, 0 to 9.

    An image is a row. All training pixels together have mean 0 and sd 1.
    """

    label: str
    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def fashion(folder: Path) -> Images:
    """Read the full data set: 60,000 training images and 10,000 test images.

    Raises
    ------
    SystemExit
        A file is missing.
    """
    found = {}
    for part in ("train", "t10k"):
        for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
            path = folder / f"{part}-{kind}-ubyte.gz"
            if not path.is_file():
                raise SystemExit(
                    f"Fashion-MNIST is not here: there is no {path}.\n"
                    "On Debian and Ubuntu run: apt-get install dataset-fashion-mnist. Elsewhere "
                    "pass --data FOLDER with the four files that Zalando Research publishes."
                )
            raw = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)
            found[part, kind] = raw.reshape(-1, PIXELS) if header == 16 else raw.astype(np.int64)
    pixels = found["train", "images-idx3"]
    mean, sd = np.float32(pixels.mean()), np.float32(pixels.std())
    train, test = ((found[part, "images-idx3"] - mean) / sd for part in ("train", "t10k"))
    labels = (found[part, "labels-idx1"] for part in ("train", "t10k"))
    return Images("Fashion-MNIST", train, next(labels), test, next(labels))


def synthetic(seed: int) -> Images:
    """Ten noisy patterns, for trying out the script without the data."""
    rng = np.random.default_rng(seed)
    patterns = rng.standard_normal((CLASSES, PIXELS)).astype(np.float32)
    labels = rng.integers(CLASSES, size=3000)
    rows = (0.1 * patterns[labels] + rng.standard_normal((3000, PIXELS))).astype(np.float32)
    label = "SYNTHETIC patterns, which say nothing about Fashion-MNIST"
    return Images(label, rows[:2000], labels[:2000], rows[2000:], labels[2000:])


def few(images: Images, rows: int) -> Images:
    """The first `rows` images of each part."""
    return Images(
        f"{images.label}, {rows} images",
        images.train[:rows],
        images.train_labels[:rows],
        images.test[:rows],
        images.test_labels[:rows],
    )
