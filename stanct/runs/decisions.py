"""What the default did and why, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stanct.estimates.digits import log_z_in_words
from stanct.runs.diagnostics import enough_in_words


def decisions(provenance: Mapping[str, Any]) -> Iterator[str]:
    """One sentence for each step of the default, and each extension.

    Before them, one says why a bridge was not enough, or what the chains of its fit do not tell.
    """
    if bridged := provenance.get("bridge"):
        yield (
            f"It tempered from {bridged['fit']}, because checks of the bridge failed: "
            f"{', '.join(bridged['warnings'])}."
        )
    if "fit" in provenance and provenance["settings"]["chains"] == 1:
        yield (
            "The fit has one chain, or no column chain__ that tells its chains apart, so that "
            "chains cannot be compared."
        )
    if not provenance.get("numbered", True):
        yield (
            "The table numbers neither chains nor draws. Its rows must be in the order in which "
            "they were drawn, which nobody checked: of permuted ones, as of rstan::extract(), the "
            "error is too small."
        )
    if not provenance.get("has_lp", True):
        yield (
            "The fit has no lp__, so that only gradients tell whether it is of this program and of "
            "these data, and small differences are not seen."
        )
    before: Mapping[str, Any] = {}
    for step in provenance.get("steps", ()):
        if not before:
            yield f"The default took {step['method']}, because {step['because']}."
        else:
            yield (
                f"It found {_estimate(before)}. Then it took {step['method']} for up to "
                f"{step['draws']} draws of each chain, because {step['because']}."
            )
        if stopped := step.get("enough"):
            yield (
                f"It stopped after {step['made']} draws of each chain: {enough_in_words(stopped)}."
            )
        before = step
    if limit := before.get("limit"):
        aim = f"{limit['target_se']:g}"
        yield (
            f"It ended at {before['made']} draws of each chain, the most that it makes unasked, "
            f"before log Z was known to ± {aim} and means rested on {limit['effective']:,} "
            f"effective draws; target_se={aim} (--target-se {aim}) goes on."
        )
    if rest := before.get("rest"):
        yield f"No further run followed, although {rest['despite']}: {rest['because']}."
    for further in provenance.get("extended", {}).get("draws", ()):
        yield f"It was extended by {further} draws of each chain."


def _estimate(found: Mapping[str, Any]) -> str:
    if "log_z" not in found:
        return "no estimate"
    return log_z_in_words(found["log_z"], found["std_error"])
