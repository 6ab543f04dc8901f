"""Servers that want more of sites under a promise of privacy than one noisy answer per question."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.federation.server.run import read_members, run_folder, run_plan
from fedminmax.federation.site.ledger import read_log
from fedminmax.federation.wire.codec import RefusedError
from fedminmax.federation.wire.plan import NetworkPlan, plan_to_bytes
from tests.federation.masked_problem import FourSites, listed_config
from tests.federation.private_sites import OneSite, private_plan, shared_encoding


class SecondPlan(FourSites):
    """The server sends each site another plan after its own: one without a promise."""

    def __init__(self, folder: Path, plan: NetworkPlan) -> None:
        super().__init__(folder)
        self.other = replace(plan, run="other", privacy=None)

    def answer(self, site: str, question: str, words: Mapping[str, object]) -> object:
        answer = super().answer(site, question, words)
        if question == "prepare":
            with pytest.raises(RefusedError, match="sent a second plan"):
                super().answer(site, question, {"plan": plan_to_bytes(self.other)})
        return answer


def test_a_second_plan_changes_neither_clipping_nor_limits(tmp_path: Path) -> None:
    """Rows would be encoded without a clip, and limits on orders counted for another run."""
    plan = private_plan(listed_config(tmp_path))
    assert run_plan(plan, SecondPlan(tmp_path, plan), tmp_path / "run").error is None
    assert read_members(run_folder(tmp_path / "run", plan, 0)).isfinite().all()
    assert {entry.run for entry in read_log(tmp_path / "north-kept")} == {plan.run}


def test_noise_is_forgotten_in_the_process_too(tmp_path: Path) -> None:
    plan = private_plan(listed_config(tmp_path))
    site = OneSite(plan, tmp_path, "north", shared_encoding(plan, tmp_path))
    site.reply(site.order())
    site.private.forget_key()
    with pytest.raises(RefusedError, match="is over at this site"):
        site.reply(site.order())
