"""The page about the estimators runs as written, and says what it finds."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_examples_run_one_after_another(tmp_path: Path) -> None:
    assert 0 < len(BLOCKS[0].splitlines()) <= 22
    program = tmp_path / "page.py"
    program.write_text("".join(BLOCKS))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    women = [line for line in done.stdout.splitlines() if line.startswith("| female")]
    without, with_adversary = (float(line.split("|")[4].split()[0]) for line in women)
    assert with_adversary < without  # the worst-off group's Brier risk falls
