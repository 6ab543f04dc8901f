"""Settings of one call that replace those of the configuration."""

import re
import tomllib
from dataclasses import dataclass, replace

from fedminmax.config.read import TableConfig, checked
from fedminmax.config.sections import FRONTIER, LoggingSection
from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.core.validation import checked_share
from fedminmax.methods.catalogue import CARDS

# The option of methods that know how far they are from the optimum.
GAP = "optimality_gap"


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """What a call sets instead of the configuration; None, or False, keeps what the file says."""

    rounds: int | None = None
    seed: int | None = None
    validation: float | None = None
    patience: int | None = None
    optimality_gap: float | None = None
    certify: bool = False
    frontier: bool = False
    secure_aggregation: bool | None = None
    tensorboard: bool = False
    mlflow_uri: str | None = None

    def apply(self, config: TableConfig) -> TableConfig:
        """Return the configuration with these settings; refuse what it does not allow."""
        method, logging = config.method, config.logging
        options = method.options
        if self.optimality_gap is not None:
            self._check_gap_of(method.name)
            options = {**options, GAP: repr(self.optimality_gap)}
        if self.frontier:
            check_has_frontier(method.name)
            options = {**options, FRONTIER: "true"}
        changed = replace(
            config,
            seed=config.seed if self.seed is None else self.seed,
            validation=config.validation
            if self.validation is None
            else checked_share(self.validation),
            secure_aggregation=config.secure_aggregation
            if self.secure_aggregation is None
            else self.secure_aggregation,
            method=replace(
                method,
                options=options,
                rounds=self.rounds or method.rounds,
                patience=self.patience or method.patience,
                certify=self.certify or method.certify,
            ),
            logging=LoggingSection(
                self.tensorboard or logging.tensorboard, self.mlflow_uri or logging.mlflow_uri
            ),
        )
        _check_validation(changed)
        return checked(changed)

    def _check_gap_of(self, method: str) -> None:
        if GAP not in CARDS[method].option_types:
            raise InputError(
                f"--optimality-gap {self.optimality_gap:g}: {method} does not know how far it is "
                'from the optimum; set name = "fedminmax-fast" in [method]'
            )


def check_has_frontier(method: str) -> None:
    """Refuse a frontier of a method that cannot find it."""
    if FRONTIER not in CARDS[method].option_types:
        raise InputError(
            f"frontier: {method} has no certified weights between those of the plain and of the "
            'minimax model; set name = "fedminmax-fast" in [method]'
        )


def _check_validation(config: TableConfig) -> None:
    """Refuse to choose a round, or to stop, by validation rows that there are none of."""
    method = config.method
    if config.validation == 0.0 and method.patience is not None:
        raise InputError(
            f"patience = {method.patience} needs validation rows to detect an improvement; "
            "set validation = 0.1 in [data]"
        )
    if config.validation == 0.0 and method.iterate is Iterate.BEST:
        raise InputError(
            '[method] iterate = "best" is chosen by validation rows; set validation = 0.1 in [data]'
        )


NO_OVERRIDES = Overrides()


def with_seed(text: str, seed: int) -> str:
    r"""Return a configuration's text with another seed.

    >>> print(with_seed('[data]\ntarget = "y"\nseed = 3  # of all\n[model]', 4))
    [data]
    target = "y"
    seed = 4  # of all
    [model]
    """
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if re.match(r"\s*\[\s*data\s*\]", line)), None)
    if start is not None:
        ends = (n for n, line in enumerate(lines) if n > start and line.lstrip().startswith("["))
        section = range(start + 1, next(ends, len(lines)))
        line = next((n for n in section if re.match(r"\s*seed\s*=", lines[n])), None)
        if line is None:
            lines.insert(start + 1, f"seed = {seed}")
        else:
            lines[line] = re.sub(r"=\s*[0-9_]+", f"= {seed}", lines[line], count=1)
    changed = "\n".join(lines) + "\n" * text.endswith("\n")
    if tomllib.loads(changed).get("data", {}).get("seed") != seed:
        raise InputError("the seed cannot be set in this configuration; write seed = 0 in [data]")
    return changed
