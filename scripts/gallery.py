"""Make the reports of docs/gallery.md and their pictures: python -m scripts.gallery FOLDER.

Three runs whose verdicts differ: patients of three made hospitals, made patients whom a drug
affects in opposite ways, and the shipped census data with exact minimax. Pictures are taken by
Chromium and written to docs/.
"""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
from playwright.sync_api import sync_playwright

from fedminmax.cli.main import main as fedminmax
from fedminmax.data.demo_tables import adult_table, hospital_tables

DOCS = Path(__file__).parents[1] / "docs"
# What one screen of a desk shows.
WIDTH, HEIGHT = 1180, 860
EXACT_LOGISTIC = """
[model]
kind = "logistic"
loss = "cross_entropy"
ridge = 1e-4

[method]
name = "fedminmax-fast"
tolerance = 0
"""


def opposite_effects() -> dict[str, str]:
    """The tables of the tutorial: the drug helps men, harms women, and women are a quarter."""
    generator, tables = np.random.default_rng(0), {}
    for hospital, rows in {"north": 4500, "south": 3000, "west": 2500}.items():
        sex = generator.choice(["female", "male"], rows, p=[0.25, 0.75])
        age, dose = generator.integers(20, 90, rows), generator.normal(size=rows)
        chance = 1 / (1 + np.exp(-np.where(sex == "female", -1, 1) * dose - (age - 55) / 20))
        well = np.where(generator.random(rows) < chance, "well", "ill")
        frame = pl.DataFrame({"sex": sex, "age": age, "dose": dose, "outcome": well})
        tables[hospital] = frame.write_csv()
    return tables


def report_of(folder: Path, tables: Mapping[str, str], words: list[str], changed: str = "") -> Path:
    """Write tables, train on them as the configuration that is found says, and write the report."""
    folder.mkdir(parents=True)
    files = [folder / f"{name}.csv" for name in tables]
    for file, text in zip(files, tables.values(), strict=True):
        file.write_text(text)
    config, run = folder / "fedminmax.toml", folder / "run"
    fedminmax(["init", *map(str, files), *words, "--out", str(config)])
    if changed:
        config.write_text(config.read_text().partition("\n[model]")[0] + changed)
    fedminmax(["train", str(config), "--out", str(run)])
    fedminmax(["report", str(run)])
    return run / "report.html"


def photograph(page: Path, picture: Path) -> None:
    """Take a picture of the page's first screen."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("the pictures need Chromium; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        opened.goto(page.resolve().as_uri())
        opened.screenshot(path=picture)
        browser.close()


def main(folder: Path) -> None:
    """Make all three."""
    census = {"adult": adult_table()}
    by_race = ["--target", "income", "--groups", "sex,race", "--site-column", "site"]
    pages = {
        "helped": report_of(
            folder / "helped",
            hospital_tables(),
            ["--target", "infarction", "--groups", "sex"],
        ),
        "price": report_of(
            folder / "price", opposite_effects(), ["--target", "outcome", "--groups", "sex"]
        ),
        "no_benefit": report_of(folder / "no_benefit", census, by_race, EXACT_LOGISTIC),
    }
    for name, page in pages.items():
        photograph(page, DOCS / f"gallery_{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
