"""Make the reports of docs/gallery.md and their pictures: python -m scripts.gallery FOLDER.

Three runs whose verdicts differ: the simulated hospitals and the census data of `fedminmax demo`,
and the census data again with a logistic model and exact minimax. Pictures are taken by Chromium
and written to docs/.
"""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import sync_playwright

from fedminmax.cli.main import main as fedminmax
from fedminmax.data.adult import adult_table, hospital_tables

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
    patients = ["--target", "infarction", "--groups", "sex"]
    pages = {
        "price": report_of(folder / "price", hospital_tables(), patients),
        "no_change": report_of(folder / "no_change", census, by_race),
        "no_benefit": report_of(folder / "no_benefit", census, by_race, EXACT_LOGISTIC),
    }
    for name, page in pages.items():
        photograph(page, DOCS / f"gallery_{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
