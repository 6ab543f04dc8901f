"""Totals of masked answers equal plain sums, whoever drops out and whenever."""

from pathlib import Path

import numpy as np

from fedminmax.federation.secure.messages import order_hash
from tests.federation.secure.masked_sites import (
    FIRST,
    LAYOUT,
    ORDER,
    SITES,
    MaskedSites,
)


def test_the_total_is_the_sum(tmp_path: Path) -> None:
    sites = MaskedSites(tmp_path)
    _, totals = sites.open()
    total = totals.total(FIRST, {"order": ORDER}, order_hash(ORDER), LAYOUT, SITES)
    plain = sites.plain_total(SITES)
    assert total.sites == SITES
    assert not total.failures
    np.testing.assert_array_equal(total.values["counts"], plain["counts"])
    np.testing.assert_allclose(total.values["step"], plain["step"], rtol=0, atol=2.0**-38)
