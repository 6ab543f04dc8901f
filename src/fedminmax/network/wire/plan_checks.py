"""What a site refuses of a plan that somebody sent, and why a plan cannot keep what it promises."""

import math
import re

from fedminmax.config.sections import MODEL_KINDS
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import CONVEX_LOSSES
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import Reveals
from fedminmax.core.small_groups import SmallGroupRule
from fedminmax.core.text import counted
from fedminmax.core.validation import MAX_SHARE
from fedminmax.methods.catalogue import CARDS, MethodPackage, package_of
from fedminmax.network.wire.codec import RefusedError, record_from_bytes
from fedminmax.network.wire.plan import MIN_MASKED_SITES, NetworkPlan, threshold_for
from fedminmax.network.wire.values import MAX_OPEN_COLUMNS

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
    promise, first = plan.privacy, plan.runs[0]
    if promise is None:
        return None
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
