"""`fedminmax methods`: every method, every option, and where its default comes from."""

import json
from pathlib import Path

from fedminmax.methods.catalogue import CARDS
from tests.cli.command import complaint, fedminmax


def test_every_method_is_listed_with_its_facts(tmp_path: Path) -> None:
    done = fedminmax("methods", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for card in CARDS.values():
        assert card.paper in done.stdout
        for option in card.options:
            assert option.name in done.stdout


def test_cards_for_machines(tmp_path: Path) -> None:
    done = fedminmax("methods", "--json", cwd=tmp_path)
    cards = {card["key"]: card for card in json.loads(done.stdout)}
    assert list(cards) == list(CARDS)
    assert cards["fedminmax"]["reveals"] == "only sums over all sites"
    assert cards["afl"]["reveals"] == "each site's own loss"
    assert cards["fedmgda"]["reveals"] == "each site's own update"
    rate = {"name": "adversary_rate", "default": "0.1"}
    assert any(rate.items() <= option.items() for option in cards["fedminmax"]["options"])


def test_one_method_by_name(tmp_path: Path) -> None:
    done = fedminmax("methods", "qfedavg", cwd=tmp_path)
    assert "Li, Sanjabi, Beirami, Smith" in done.stdout
    assert "McMahan" not in done.stdout


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    assert "method 'fair' is unknown" in complaint("methods", "fair", cwd=tmp_path)
