"""What server and sites agree on before the first round: schema, model, runs; no path, no code.

What a site refuses of a plan that somebody sent, and why a plan cannot keep what it promises.
"""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum

import torch
from pydantic_core import to_json

from fedminmax.config.file_format import PLAIN, FileFormat
from fedminmax.config.planned_runs import PlannedRun, planned_runs
from fedminmax.config.read import TableConfig
from fedminmax.config.schema import Schema
from fedminmax.config.sections import EFFECTS, MODEL_KINDS, ModelSection
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import CONVEX_LOSSES
from fedminmax.core.losses import LOSSES_BY_NAME, cross_entropy_loss
from fedminmax.core.messages import Reveals
from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.core.randomness import Purpose, torch_seeded
from fedminmax.core.small_groups import SmallGroupRule
from fedminmax.core.task import Task
from fedminmax.core.text import counted
from fedminmax.core.validation import MAX_SHARE
from fedminmax.data.partition import max_held_out
from fedminmax.data.tables.encode import initial_model
from fedminmax.data.tables.encoding import Encoding
from fedminmax.methods.catalogue import CARDS, MethodPackage, package_of
from fedminmax.network.wire.codec import (
    RefusedError,
    adapter_of,
    record_from_bytes,
    record_to_bytes,
)
from fedminmax.network.wire.site_rules import DEFAULT_RULES, SiteRules
from fedminmax.network.wire.values import MAX_OPEN_COLUMNS

# Stands for all sites if sums are masked; no site has a space in its name.
ALL_SITES = "all sites"
MIN_MASKED_SITES = 3


class Precision(Enum):
    """The precision in which parameters and rows are computed and sent."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"

    @property
    def dtype(self) -> torch.dtype:
        """The type of the tensors."""
        return torch.float64 if self is Precision.FLOAT64 else torch.float32


@dataclass(frozen=True)
class SecureAggregation:
    """The server learns totals over at least ``threshold`` sites, but no site's own numbers.

    With ``same_sites`` all totals of a run are over the same sites: those of two sets would tell,
    by their difference, about the sites in which they differ. Then a round waits for all of them.
    """

    threshold: int
    same_sites: bool = True


def threshold_for(sites: int, minimum_sites: int = MIN_MASKED_SITES) -> int:
    """Return the minimum number of sites in a total.

    With more than two thirds, two totals of one request cannot exist unless a third of the sites
    help the server to get both.

    >>> threshold_for(3), threshold_for(10), threshold_for(10, 9)
    (3, 7, 9)
    """
    return max(MIN_MASKED_SITES, 2 * sites // 3 + 1, min(minimum_sites, sites))


@dataclass(frozen=True)
class NetworkPlan:
    """The complete description of a job; ``run`` names its folder, so that it can be resumed.

    ``sites`` are the sites, in the order of their numbers. ``validation`` is the share of its
    training rows that each site sets aside to choose the round. With ``certify`` the first run is
    followed by rounds that prove how much better any model could be. ``packages`` are those of
    methods that are not built in: sites must have the same. With ``secure_aggregation`` sites mask
    what they send, so that the server learns only totals; with ``privacy`` they also clip rows and
    add noise. With columns of predictions to ``audit`` there are no runs: all rows are measured.
    """

    run: str
    sites: tuple[str, ...]
    _: KW_ONLY
    schema: Schema
    model: ModelSection
    runs: tuple[PlannedRun, ...]
    held_out: float
    seed: int
    format: FileFormat = PLAIN
    precision: Precision = Precision.FLOAT32
    site_rules: SiteRules = DEFAULT_RULES
    validation: float = 0.0
    certify: bool = False
    packages: tuple[MethodPackage, ...] = ()
    secure_aggregation: SecureAggregation | None = None
    privacy: Privacy | None = None
    audit: tuple[tuple[str, ...], ...] = ()

    @property
    def minimum_sites(self) -> int:
        """How many sites a round needs; never more than there are."""
        least = max(self.site_rules.minimum_sites, 1)
        if self.secure_aggregation is not None:
            everyone = len(self.sites) if self.secure_aggregation.same_sites else 0
            least = max(least, self.secure_aggregation.threshold, everyone)
        return min(least, len(self.sites))

    @property
    def senders(self) -> tuple[str, ...]:
        """Whose replies the server sees: every site's, or one total if sums are masked."""
        return self.sites if self.secure_aggregation is None else (ALL_SITES,)

    @property
    def max_sites_per_reply(self) -> int:
        """The maximum number of sites in one reply."""
        return len(self.sites) // len(self.senders)

    @property
    def minimum_replies(self) -> int:
        """How many replies a round needs; a masked total of enough sites is one."""
        return min(self.minimum_sites, len(self.senders))


def plan_to_bytes(plan: NetworkPlan) -> bytes:
    """Write a plan as JSON."""
    return record_to_bytes(plan)


def digest_of(plan: NetworkPlan) -> str:
    """Return a digest of what a plan asks of a site.

    It does not depend on the other sites, or on the length and patience of the runs. Whether sums
    are masked is part of it; over how many sites depends on the participants, and sites check that
    themselves. A privacy guarantee is part of it with its rounds.
    """
    bare = replace(
        plan,
        run="",
        sites=(),
        runs=tuple(
            replace(run, rounds=0, patience=None, needs_patience=False) for run in plan.runs
        ),
        site_rules=DEFAULT_RULES,
        secure_aggregation=None
        if plan.secure_aggregation is None
        else replace(plan.secure_aggregation, threshold=0),
    )
    content = adapter_of(NetworkPlan).dump_python(bare, mode="json")
    return hashlib.sha256(to_json(content)).hexdigest()[:32]


def max_rows_set_aside(plan: NetworkPlan, train: int, share: float, strata: int) -> int:
    """Return the maximum number of held-out or validation rows for this many training rows.

    If rows of a person stay together there is no limit: a person may have any number of rows.
    """
    by_person = plan.schema.person_column is not None and share > 0.0
    sites = plan.max_sites_per_reply
    if by_person:
        return plan.site_rules.max_rows * sites
    return max_held_out(train, share, strata * sites)


def task_of(plan: NetworkPlan, encoding: Encoding) -> Task:
    """Build the model, initialised from the plan's seed, and its loss."""
    with torch_seeded(plan.seed, Purpose.INITIALISATION):
        model = initial_model(encoding, plan.model.hidden, plan.model.class_ridge)
    if not encoding.is_additive:
        model = model.to(plan.precision.dtype)
    ridge = plan.model.class_ridge if encoding.is_additive else plan.model.ridge
    # Smoothing is chosen by likelihood, whatever is trained afterwards.
    chooses = encoding.is_additive and not encoding.stage and encoding.outputs > 1
    loss = cross_entropy_loss if chooses else LOSSES_BY_NAME[plan.model.loss]
    return Task(model, loss, ridge)


def plan_of_config(
    config: TableConfig, run: str, sites: Sequence[str], site_rules: SiteRules
) -> NetworkPlan:
    """Return a configuration as a plan for these sites."""
    runs = tuple(
        replace(
            own,
            iterate=config.iterate,
            patience=config.patience,
            needs_patience=config.method.patience is not None,
        )
        for own in ([] if config.audit else planned_runs(config.method))
    )
    methods = dict.fromkeys(own.method for own in runs)
    return NetworkPlan(
        run=run,
        sites=tuple(sites),
        schema=config.schema,
        model=config.model,
        runs=runs,
        held_out=config.held_out,
        seed=config.seed,
        format=config.format,
        site_rules=site_rules,
        validation=config.validation,
        certify=config.method.certify,
        packages=tuple(package for package in map(package_of, methods) if package is not None),
        secure_aggregation=_secure_aggregation(config, len(sites), site_rules)
        if config.secure_aggregation
        else None,
        privacy=config.promise,
        audit=config.audit,
    )


def _secure_aggregation(
    config: TableConfig, sites: int, site_rules: SiteRules
) -> SecureAggregation:
    """Return how many sites are in a total: all, unless the configuration allows other sets.

    Under a privacy guarantee, at least all but the colluding ones.
    """
    if config.same_sites:
        return SecureAggregation(sites)
    least = threshold_for(sites, site_rules.minimum_sites)
    if config.privacy is not None:
        least = max(least, sites - config.privacy.colluding)
    return SecureAggregation(least, same_sites=False)


MAX_PLAN_BYTES = 2**22
# Names of runs become names of folders at the sites.
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
PACKAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,49}")


def plan_from_bytes(message: object, sender: str) -> NetworkPlan:
    """Read a plan; refuse one that has other fields, or a method that is not installed."""
    what = "plan of this version"
    plan: NetworkPlan = record_from_bytes(message, NetworkPlan, MAX_PLAN_BYTES, sender, what)
    if RUN_NAME.fullmatch(plan.run) is None:
        raise RefusedError(
            f"{sender} sent a run's name that is not letters, digits, - and _; refused"
        )
    if not 0.0 <= plan.validation <= MAX_SHARE:
        raise RefusedError(f"{sender} asks for {plan.validation:g} of the rows as validation rows")
    if len(plan.schema.open_columns) > MAX_OPEN_COLUMNS:
        raise RefusedError(
            f"{sender} asks for the values of {len(plan.schema.open_columns)} columns, at most "
            f"{MAX_OPEN_COLUMNS} may have no list; refused (init --list-categories)"
        )
    _check_methods(plan, sender)
    if plan.model.kind not in MODEL_KINDS:
        raise RefusedError(f"{sender} asks for the unknown model '{plan.model.kind[:100]}'")
    if plan.model.is_additive and not plan.model.ridge:
        raise RefusedError(f"{sender} asks for an additive model without a ridge; refused")
    if plan.model.inputs == EFFECTS and not plan.model.hidden:
        raise RefusedError(f"{sender} asks for effects as inputs of no network; refused")
    if plan.model.has_codes and plan.privacy is not None:
        raise RefusedError(f"{sender} asks for [privacy] with sums that have no noise; refused")
    if plan.model.loss not in LOSSES_BY_NAME:
        raise RefusedError(f"{sender} asks for the unknown loss '{plan.model.loss}'")
    if not 0.0 <= plan.model.ridge < math.inf or (plan.model.ridge and plan.model.hidden):
        raise RefusedError(
            f"{sender} asks for a ridge of {plan.model.ridge:g} with {len(plan.model.hidden)} "
            "hidden layers; refused"
        )
    fault = secure_aggregation_fault(plan)
    if fault is not None:
        raise RefusedError(f"{sender} asks for masked sums, but {fault}")
    fault = privacy_fault(plan) or noise_fault(plan)
    if fault is not None:
        raise RefusedError(f"{sender} asks for [privacy], but {fault}")
    if plan.certify and (plan.model.hidden or plan.model.loss not in CONVEX_LOSSES):
        raise RefusedError(f"{sender} asks for a proof about a model that cannot be certified")
    return plan


def secure_aggregation_fault(plan: NetworkPlan) -> str | None:
    """Return why the sums of this plan cannot be masked; None if they can, or are not to be."""
    if plan.secure_aggregation is None:
        return None
    least, sites = plan.secure_aggregation.threshold, len(plan.sites)
    # What concerns a site that does not know the others yet comes last.
    return masking_fault(plan) or _company_fault(least, sites)


def _company_fault(least: int, sites: int) -> str | None:
    if sites < MIN_MASKED_SITES:
        return f"{counted(sites, 'site')} take part, and at least {MIN_MASKED_SITES} are needed"
    lowest = threshold_for(sites)
    if not lowest <= least <= sites:
        return f"totals over {least} of {sites} sites were asked for; at least {lowest} are needed"
    return None


def masking_fault(plan: NetworkPlan) -> str | None:
    """Return why what this plan asks for cannot be masked, with any sites."""
    for run in plan.runs:
        # A learning rate that is not known yet is any number.
        reveals = CARDS[run.method].build({}).reveals
        if reveals is not Reveals.SUMS:
            return f"method '{run.method}' needs {reveals.value}"
        if run.participation < 1.0:
            return f"participation is {run.participation:g}, and all sites must be asked"
    for entry in plan.schema.protected:
        if not (entry.values or entry.edges):
            return f"the values of '{entry.column}' are not listed in [groups.values]"
    return None


def privacy_fault(plan: NetworkPlan) -> str | None:
    """Return why this plan's privacy guarantee cannot be kept, with any sites; None if it can."""
    promise = plan.privacy
    if promise is None:
        return None
    first = plan.runs[0]
    card = CARDS[first.method]
    if plan.secure_aggregation is None:
        return (
            "sums are not masked, and one site's share of the noise hides little; set "
            "secure_aggregation = true in [federation]"
        )
    if promise.unit not in card.private_units:
        return f'{first.method} cannot keep it with unit = "{promise.unit.value}"'
    if "curvature" in card.option_types and first.options.get("curvature") != "false":
        return "curvature sums cannot keep it; set curvature = false in [method]"
    if len(plan.runs) > 1:
        return "a second model would spend the budget again; remove the baseline"
    if plan.validation or plan.certify:
        return "losses on validation rows and proofs are not covered by it; remove them"
    if first.rounds != promise.rounds:
        return f"it is for {promise.rounds} rounds, and {first.rounds} are planned"
    for column in plan.schema.open_columns:
        return f"counts to agree on the categories of '{column}' are not covered by it; list them"
    if plan.schema.small_groups is SmallGroupRule.MERGE:
        return 'merging small groups needs exact counts; set small = "by_size" in [groups]'
    return None


def noise_fault(plan: NetworkPlan) -> str | None:
    """Return why the sites of a total might not add enough noise; None if they always do."""
    if plan.privacy is None or plan.secure_aggregation is None:
        return None
    sites, least = len(plan.sites), plan.secure_aggregation.threshold
    if plan.privacy.colluding >= sites or least < sites - plan.privacy.colluding:
        return (
            f"totals over {least} of {sites} sites would lack noise: with colluding = "
            f"{plan.privacy.colluding}, that of {max(sites - plan.privacy.colluding, 1)} is needed"
        )
    return None


def _check_methods(plan: NetworkPlan, sender: str) -> None:
    """Refuse a method that is not installed here, or differs from the sender's."""
    packages = {wanted.method: wanted for wanted in plan.packages}
    for method in dict.fromkeys(run.method for run in plan.runs):
        wanted = packages.get(method)
        asks = f"{sender} asks for method '{method[:100]}'"
        if wanted is not None:
            if not (PACKAGE_NAME.fullmatch(wanted.package) and VERSION.fullmatch(wanted.version)):
                raise RefusedError(f"{asks} of a package without a proper name and version")
            asks += f" of the package '{wanted.package}' {wanted.version}"
        if method not in CARDS:
            raise RefusedError(
                f"{asks}, which is not installed"
                + (f" here; if you trust it: {_pip(wanted)}" if wanted is not None else "")
            )
        try:
            here = package_of(method)
        except InputError as error:
            raise RefusedError(f"{asks}, but here {error}") from error
        if here == wanted:
            continue
        if wanted is None or here is None or here.package != wanted.package:
            owner = "built-in" if here is None else f"of the package '{here.package}'"
            raise RefusedError(f"{asks}, which is {owner} here; refused")
        if here.version != wanted.version:
            raise RefusedError(f"{asks}; here is version {here.version}: {_pip(wanted)}")
        raise RefusedError(
            f"{asks}, whose code is not the same here; install the same files at the server and "
            "at all sites"
        )


def _pip(wanted: MethodPackage) -> str:
    return f"pip install {wanted.package}=={wanted.version}"
