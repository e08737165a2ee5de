"""Counts of what a run spends."""

from __future__ import annotations

import pytest

from stanct.work import ledger


def test_stages_that_come_again_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 3.0, 4.0, 6.0, 10.0, 11.0])
    monkeypatch.setattr(ledger.time, "perf_counter", lambda: next(clock))
    found = ledger.Ledger()
    for stage in ("base", "sampling", "base", "sampling"):
        found.lap(stage)
    assert found.record()["stage_seconds"] == {"base": 5.0, "sampling": 5.0}
