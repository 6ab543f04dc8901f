"""The fenced blocks of all pages, who runs them, and which commands cannot run in a test."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for name in ("README.md", "CONTRIBUTING.md", "docs/*.md", "experiments/*/README.md")
    for path in ROOT.glob(name)
)
HERE = "test_pages_run.py"
# Who runs the blocks of a page and language: this folder, or a test that contains these words.
RUN_BY: dict[tuple[str, str], str | tuple[str, str]] = {
    ("README.md", "python"): ("tests/test_readme.py", "README"),
    ("README.md", "sh"): HERE,
    ("docs/advise.md", "python"): ("tests/advice/test_counts.py", "advise.md"),
    ("docs/advise.md", "sh"): HERE,
    ("docs/audit.md", "python"): HERE,
    ("docs/audit.md", "sh"): HERE,
    ("docs/audit.md", "toml"): ("tests/runs/test_network_audit.py", "predictions"),
    ("docs/documents.md", "sh"): HERE,
    ("docs/choosing_groups.md", "sh"): HERE,
    ("docs/choosing_groups.md", "toml"): ("tests/docs/test_blocks.py", "FRAGMENTS"),
    ("docs/choosing_method.md", "sh"): HERE,
    ("docs/deployment.md", "sh"): HERE,
    ("docs/deployment.md", "toml"): ("tests/docs/test_blocks.py", "read_federation_file"),
    ("docs/estimators.md", "python"): ("tests/estimators/test_conventions.py", "estimators.md"),
    ("docs/examples.md", "python"): ("tests/test_readme.py", "examples.md"),
    ("docs/flare.md", "python"): ("tests/integration/test_flare_recipe.py", "flare.md"),
    ("docs/flower.md", "sh"): ("tests/integration/test_flower_processes.py", "flower.md"),
    ("docs/getting_started.md", "python"): HERE,
    ("docs/getting_started.md", "sh"): HERE,
    ("docs/install.md", "sh"): ("tests/packages/test_packages.py", "empty environment"),
    ("docs/last_layer.md", "python"): HERE,
    ("docs/last_layer.md", "sh"): HERE,
    ("docs/methods.md", "python"): ("tests/test_readme.py", "methods.md"),
    ("docs/own_data.md", "python"): ("tests/cli/test_train_seeds.py", "own_data.md"),
    ("docs/own_data.md", "sh"): ("tests/cli/test_train_seeds.py", "own_data.md"),
    ("docs/own_method.md", "python"): ("tests/contract/test_faults.py", "check_method"),
    ("docs/own_data.md", "toml"): ("tests/data/tables/test_codes.py", "own_data.md"),
    ("docs/own_method.md", "toml"): ("tests/test_own_method.py", "entry-points"),
    ("docs/releasing.md", "sh"): ("tests/packages/test_packages.py", "empty environment"),
    ("docs/report.md", "sh"): HERE,
    ("docs/report.md", "toml"): ("tests/docs/test_blocks.py", "FRAGMENTS"),
    ("docs/sites.md", "sh"): ("tests/integration/test_deployment.py", '"site", "start"'),
    ("docs/site_policy.md", "sh"): ("tests/cli/test_site.py", '"site", "log"'),
    ("docs/using_model.md", "python"): ("tests/cli/test_train_seeds.py", "using_model.md"),
    ("docs/using_model.md", "sh"): ("tests/cli/test_train_seeds.py", "using_model.md"),
    ("docs/watch.md", "sh"): ("tests/integration/test_watch_in_browser.py", "watch"),
    ("experiments/fashion_mnist/README.md", "sh"): ("tests/experiments/test_fashion.py", "quick"),
    ("experiments/methods/README.md", "sh"): ("tests/cli/test_compare.py", "compare"),
    ("experiments/synthetic/README.md", "sh"): ("tests/experiments/test_synthetic.py", "SMALL"),
}
# Commands of the pages that run here which cannot run in a test; their words are checked.
NOT_RUN = {
    "pip ": "changes the environment; the extras are those of pyproject.toml",
    "make ": "sets up an environment; the targets are those of the Makefile",
}


@dataclass(frozen=True)
class Block:
    """A fenced block; its language is empty if it shows what a program prints."""

    language: str
    text: str


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    fences = re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)
    return [Block(fence[2], dedent(fence[3])) for fence in fences]


def lines_of(text: str) -> Iterator[str]:
    """Yield a shell block's commands, with its own variables put in."""
    variables: dict[str, str] = {}
    for line in text.replace("\\\n", " ").splitlines():
        assignment = re.match(r'(\w+)="(.*)"$', line)
        if assignment:
            variables[assignment[1]] = assignment[2]
            continue
        for name, value in variables.items():
            line = re.sub(rf"\${name}\b", value, line)
        if shlex.split(line, comments=True):
            yield line


def words_of(line: str) -> list[str]:
    """Return a command's words without its comment."""
    return shlex.split(line, comments=True)
