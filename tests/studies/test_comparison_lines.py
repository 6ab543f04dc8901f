"""Which methods a comparison runs in which setting."""

import pytest

from fedminmax.methods.catalogue import CARDS
from fedminmax.studies.comparison import lines_of_table, parse_entry
from tests.complaints import complaint_of


def lines(words: str, settings: str) -> list[tuple[str, str]]:
    entries = [parse_entry(word, CARDS, {}) for word in words.split(",")]
    return [(name, entry.label) for name, entry in lines_of_table(entries, settings.split(","))]


def test_a_method_without_a_setting_is_run_in_all_that_are_asked_for() -> None:
    assert lines("fedminmax,afl", "ESG,SSG") == [
        ("ESG", "fedminmax"),
        ("ESG", "afl"),
        ("SSG", "fedminmax"),
        ("SSG", "afl"),
    ]


def test_a_method_with_a_setting_is_run_there_alone() -> None:
    assert lines("afl@SSG,fedminmax@centralized,fedavg:epochs=2", "ESG,SSG") == [
        ("ESG", "fedavg:epochs=2"),
        ("SSG", "afl"),
        ("SSG", "fedavg:epochs=2"),
        ("centralized", "fedminmax"),
    ]


def test_a_line_that_two_words_ask_for_is_run_once() -> None:
    assert lines("fedminmax,fedminmax@ESG", "ESG") == [("ESG", "fedminmax")]


@pytest.mark.parametrize("setting", ["XSG", ""])
def test_an_unknown_setting_is_named(setting: str) -> None:
    message = complaint_of(lambda: parse_entry(f"fedminmax@{setting}", CARDS, {}))
    assert f"setting '{setting}'" in message
    assert "centralized" in message
