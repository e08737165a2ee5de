"""Targets whose log Z and moments are known exactly, as plain functions of the unconstrained x."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from stanct.path.gaussian import LOG_2PI, GaussianBase
from stanct.targets.function_target import FunctionDensity, FunctionTarget

Array = np.ndarray


@dataclass(frozen=True)
class Analytic:
    """A density with its truths and a base that is off in place and width."""

    function: Callable[[Array], tuple[float, Array]]
    log_z: float
    mean: Array
    variance: Array
    base: GaussianBase

    @property
    def target(self) -> FunctionTarget:
        return FunctionTarget(FunctionDensity(self.function, self.mean.size))


def gaussian(dimension: int, log_z: float = 7.5) -> Analytic:
    """exp(log_z) N(mean, diag) in `dimension` dimensions; the base is shifted and too wide."""
    mean = np.linspace(-1.0, 1.5, dimension)
    sd = np.linspace(0.5, 1.2, dimension)
    constant = log_z - np.log(sd).sum() - 0.5 * dimension * LOG_2PI

    def function(x: Array) -> tuple[float, Array]:
        t = (x - mean) / sd
        return constant - 0.5 * float(t @ t), -t / sd

    base = GaussianBase(mean + 0.6 * sd, np.diag(1.5 * sd))
    return Analytic(function, log_z, mean, sd**2, base)


def skewed() -> Analytic:
    """A skew normal in the first coordinate (shape 4) and a standard normal in the second."""
    shape, log_z = 4.0, -3.25
    bend = shape / np.sqrt(1 + shape**2)

    def function(x: Array) -> tuple[float, Array]:
        first, second = float(x[0]), float(x[1])
        log_cdf = float(log_ndtr(shape * first))
        value = log_z + math.log(2) - 0.5 * (first**2 + second**2) - LOG_2PI + log_cdf
        slope = shape * math.exp(-0.5 * (shape * first) ** 2 - 0.5 * LOG_2PI - log_cdf)
        return value, np.array([slope - first, -second])

    mean = np.array([bend * np.sqrt(2 / np.pi), 0.0])
    variance = np.array([1 - mean[0] ** 2, 1.0])
    return Analytic(
        function, log_z, mean, variance, GaussianBase(np.array([0.2, 0.3]), 1.4 * np.eye(2))
    )


def bimodal() -> Analytic:
    """0.6 N(−8, 1) + 0.4 N(8, 2²) with the moment-matched base ([GS] 7.1), log Z = 0."""
    weights, means, sds = np.array([0.6, 0.4]), np.array([-8.0, 8.0]), np.array([1.0, 2.0])

    def function(x: Array) -> tuple[float, Array]:
        # Plain floats are several times faster than arrays of two.
        left, right = float(x[0]) + 8, (float(x[0]) - 8) / 2
        terms = math.log(0.6) - 0.5 * left**2, math.log(0.4 / 2) - 0.5 * right**2
        top = max(terms)
        value = top + math.log(math.exp(terms[0] - top) + math.exp(terms[1] - top))
        slope = math.exp(terms[0] - value) * left + math.exp(terms[1] - value) * right / 2
        return value - 0.5 * LOG_2PI, np.array([-slope])

    mean = weights @ means
    variance = weights @ (sds**2 + means**2) - mean**2
    base = GaussianBase(np.array([mean]), np.array([[np.sqrt(variance)]]))
    return Analytic(function, 0.0, np.array([mean]), np.array([variance]), base)


def funnel() -> Analytic:
    """x₁ ~ N(0, 1) and x₂, x₃ ~ N(0, exp(x₁)), log Z = 2: narrow where x₁ is low."""
    log_z = 2.0

    def function(x: Array) -> tuple[float, Array]:
        precision = np.exp(-x[0])
        square = float(x[1:] @ x[1:])
        value = log_z - 1.5 * LOG_2PI - 0.5 * x[0] ** 2 - x[0] - 0.5 * precision * square
        slope = -x[0] - 1 + 0.5 * precision * square
        return value, np.array([slope, *(-precision * x[1:])])

    variance = np.array([1.0, np.exp(0.5), np.exp(0.5)])
    base = GaussianBase(np.array([0.3, 0.2, -0.2]), np.diag([1.3, 1.5, 1.5]))
    return Analytic(function, log_z, np.zeros(3), variance, base)
