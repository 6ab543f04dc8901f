"""Kits and jobs on disk name classes: these names stay, wherever the classes have moved to."""

from importlib import import_module

import pytest

from fedminmax.federation.flare.kits import ALLOWED_CLASSES
from fedminmax.federation.flare.server import FlareServer
from fedminmax.federation.flare.site import FlareSite


# As kits have had them in resources.json since the first version.
@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("fedminmax.federation.flare_server.FlareServer", FlareServer),
        ("fedminmax.federation.flare_site.FlareSite", FlareSite),
    ],
)
def test_names_in_kits_on_disk_still_lead_to_the_classes(name: str, now: type) -> None:
    module, _, kind = name.rpartition(".")
    assert getattr(import_module(module), kind) is now
    # Jobs of this version name them so, because older kits allow no other name.
    assert name in ALLOWED_CLASSES
