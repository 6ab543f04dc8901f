"""The errors that users see, and how to install a package that is missing.

There are two errors: ``InputError`` for a user's mistake, ``DivergedError`` for a run that
diverged. Packages that only parts of fedminmax need come with its extras; ``install_command``
returns the command that installs them.
"""

# The extra of fedminmax that brings each package, by the name under which it is imported.
EXTRAS = {
    "cryptography": "flare",
    "dp_accounting": "privacy",
    "flwr": "flower",
    "jinja2": "tables",
    "matplotlib": "cli",
    "mlflow": "mlflow",
    "nvflare": "flare",
    "onnx": "onnx",
    "onnxruntime": "audit",
    "pandas": "sklearn",
    "polars": "tables",
    "psutil": "flare",
    "pydantic": "tables",
    "rich": "cli",
    "safetensors": "tables",
    "scipy": "solvers",
    "sklearn": "sklearn",
    "skops": "audit",
    "tensorboard": "tensorboard",
}


class InputError(ValueError):
    """Invalid input: one line with what was given, what was expected and what to do."""


class DivergedError(ArithmeticError):
    """Training produced a non-finite number: one line with the round, the method and advice."""


def install_command(package: str) -> str:
    """Return the command that installs a package.

    >>> install_command("scipy")
    "pip install 'fedminmax[solvers]'"
    """
    return f"pip install 'fedminmax[{EXTRAS[package]}]'"
