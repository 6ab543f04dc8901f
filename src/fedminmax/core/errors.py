"""How work stops: the user's mistake, a run that diverged, a package that is missing.

The two ways in which work stops: the user's mistake, and a run that diverged.

Packages that only parts of fedminmax need, and how to get them.
"""

# The extra of fedminmax that brings each package, by the name under which it is imported.
EXTRAS = {
    "cryptography": "flare",
    "fairlearn": "sklearn",
    "jinja2": "cli",
    "matplotlib": "cli",
    "mlflow": "mlflow",
    "nvflare": "flare",
    "onnx": "onnx",
    "pandas": "sklearn",
    "polars": "tables",
    "psutil": "flare",
    "pydantic": "tables",
    "rich": "cli",
    "safetensors": "tables",
    "scipy": "solvers",
    "sklearn": "sklearn",
    "tensorboard": "tensorboard",
}


class InputError(ValueError):
    """What came does not fit: one line with what came, what was expected and what to do."""


class DivergedError(ArithmeticError):
    """Training left the finite numbers: one line with the round, the method and advice."""


def install_command(package: str) -> str:
    """Return what a user types to get a package.

    >>> install_command("scipy")
    "pip install 'fedminmax[solvers]'"
    """
    return f"pip install 'fedminmax[{EXTRAS[package]}]'"
