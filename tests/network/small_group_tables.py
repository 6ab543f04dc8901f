"""Three sites, two of them with groups so small that they would rather not tell of them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedminmax.config.read import TableConfig, read_config
from fedminmax.network.site.settings import SiteSettings, SmallGroups

YOUNG, OLD = 40, 70
UNDER, OVER = "age under 60", "age 60 and over"
MINIMUM = 6
Counts = Mapping[tuple[str, int], int]
# In the north, the small groups together are enough; in the south, they are not.
COUNTS: dict[str, Counts] = {
    "north": {
        ("Anglian", YOUNG): 40,
        ("Anglian", OLD): 30,
        ("Basque", YOUNG): 20,
        ("Quechua", YOUNG): 5,
        ("Quechua", OLD): 4,
    },
    "south": {("Anglian", YOUNG): 30, ("Basque", YOUNG): 20, ("Sami", OLD): 3},
    "west": {("Anglian", OLD): 25, ("Basque", YOUNG): 25},
}
# By hand: what is merged, the south's smallest other group included.
MERGED = {
    "north": {("Quechua", YOUNG), ("Quechua", OLD)},
    "south": {("Sami", OLD), ("Basque", YOUNG)},
    "west": set[tuple[str, int]](),
}
SMALL_NAMES = ("Quechua", "Sami")
CONFIG = """
[data]
target = "ill"
classes = ["no", "yes"]
held_out = {held_out}
[data.sites]
north = "north.csv"
south = "south.csv"
west = "west.csv"
[groups]
columns = ["origin", "age"]
as_features = {as_features}
{groups}
[groups.bands]
age = [60]
[features.age]
kind = "numeric"
[features.dose]
kind = "numeric"
[features.ward]
kind = "category"
categories = ["a", "b"]
[features.origin]
kind = "category"
categories = ["Anglian", "Basque", "Quechua", "Sami"]
[model]
kind = "logistic"
[method]
name = "fedminmax"
rounds = 3
learning_rate = 0.3
baseline = "none"
"""


def write_small_groups(
    folder: Path,
    *,
    held_out: float = 0.2,
    as_features: bool = False,
    by_hand: bool = False,
    groups: str = "minimum_size = 0",
) -> TableConfig:
    """Write the sites' tables; ``by_hand`` has merged groups under one made-up origin and age.

    ``groups`` are further lines of that section.
    """
    folder.mkdir(exist_ok=True)
    for place, (site, counts) in enumerate(COUNTS.items()):
        generator = np.random.default_rng(place)
        lines = ["origin,age,dose,ward,ill"]
        for group, rows in counts.items():
            origin, age = ("Zulu", YOUNG) if by_hand and group in MERGED[site] else group
            for _ in range(rows):
                dose, ward = generator.normal(), generator.choice(["a", "b"])
                ill = "yes" if generator.normal() + dose > 0 else "no"
                lines.append(f"{origin},{age},{dose:.3f},{ward},{ill}")
        (folder / f"{site}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = folder / "fedminmax.toml"
    text = CONFIG.format(held_out=held_out, as_features=str(as_features).lower(), groups=groups)
    path.write_text(text, encoding="utf-8")
    return read_config(path)


def merging(folder: Path, site: str, minimum: int = MINIMUM) -> SiteSettings:
    """The settings of a site that merges its small groups."""
    return SiteSettings(
        folder / f"{site}.csv", suppress_below=minimum, small_groups=SmallGroups.MERGE
    )
