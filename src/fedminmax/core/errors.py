"""The errors that users see, and how to install a package that is missing.

Work stops with one of two errors: ``InputError`` for a mistake of the user, ``DivergedError`` for a
run that diverged. Packages that only parts of fedminmax need come with its extras;
``install_command`` says how to get them.
"""

# The extra of fedminmax that brings each package, by the name under which it is imported.
EXTRAS = {
    "cryptography": "flare",
    "dp_accounting": "privacy",
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
