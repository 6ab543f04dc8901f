"""What is certified of a run, which round validation chose, what its weights and rounds mean.

Besides, how much of each group's risk no model of this kind is known to remove.

A certificate bounds the worst group's (or site's) training risk from below. Bounds are rounded
outwards, so that they are true as printed.
"""

from dataclasses import dataclass

from fedminmax.core.additive.model import ADDITIVE
from fedminmax.core.certificate import Certificate
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import CONVEX_LOSSES
from fedminmax.core.text import (
    bounds_text,
    counted,
    listed,
    lower_text,
    percent,
    upper_percent,
    upper_text,
)
from fedminmax.core.validation import TIE
from fedminmax.findings.convergence import convergence_text
from fedminmax.findings.records import Results, RiskAfterRound
from fedminmax.findings.tables import Table
from fedminmax.findings.text import LOSS_NAMES, NOTHING, PLUS_MINUS, size_text

# The method that certifies its models where possible.
CERTIFYING = "fedminmax-fast"
# A gap below this share of the worst risk cannot matter to anybody.
HARDLY = 0.001
NOT_CERTIFIED = "There is no optimality certificate"
LIMIT_DIGITS = 6
# Weights that are this close to a reachable mix are reached, or lead to nearly the same model.
REACHED, NEARLY_REACHED = 1e-6, 0.01
MAX_WEIGHTS = 4
ABOUT_CERTIFICATES = (
    "The certificate covers the highest risk, on these training records and with these features. "
    "Another model may still be better for a group whose risk is lower. Other features, other "
    "kinds of model and other records are not covered."
)
EXCESS = "excess"
DIGITS = 4


def convergence_of(results: Results) -> str:
    """Say whether a run on tables converged; if not, say what to do."""
    if results.is_audit:
        return f"{results.method.name} was trained elsewhere."
    if results.convergence is None:
        return (
            f"Noise hides whether {results.method.name} has converged. The privacy guarantee fixed "
            f"its {counted(results.method.rounds, 'round')} beforehand; with more rounds, each has "
            "more noise."
        )
    convex = results.loss in CONVEX_LOSSES and not results.model.hidden
    return convergence_text(results.method.name, results.convergence, convex=convex)


def could_be_better(results: Results) -> str:
    """Answer whether any model of this kind could do better, as far as it is certified."""
    proof = results.proof
    if proof is None or not proof.is_of_groups:
        return "That is not known."
    size, what = upper_percent(proof.gap), class_of_models(results)
    kept, own = results.method.options.get("keep_share"), proof.highest_own
    of = "training risk of a group" if own is None else "excess of a group's training risk"
    of += " (penalty included)"
    risk = "mixture of the highest and the mean" if kept else "highest"
    if proof.limit is not None:
        highest = upper_percent((proof.upper - proof.lower) / proof.upper)
        if own is not None:
            highest = upper_text(proof.upper - proof.lower, 2)
        return (
            f"Hardly. Certified: another {what} could lower the highest {of} by at most {highest}, "
            f"which the tolerance leaves to the other groups, and within {_limits(proof)} the mean "
            f"by at most {size}.{_nearest_pair(proof)}"
        )
    if own is not None:
        size = upper_text(proof.upper - proof.lower, 2)
    if proof.gap <= HARDLY:
        return (
            f"No. Certified: whatever its parameters, another {what} could lower the {risk} {of} "
            f"by at most {size}."
        )
    return (
        f"Perhaps. It is certified only that another {what} could lower the {risk} {of} by at most "
        f"{size}."
    )


def _limits(proof: Certificate) -> str:
    """Name what the model, and those that it is compared with, keep to."""
    if proof.harm_raised:
        return "the nearest pair of limits"
    return "the tolerance" if proof.max_harm is None else "the tolerance and max_harm"


def _nearest_pair(proof: Certificate) -> str:
    """Say which limits the model keeps to if no model keeps to those that were given."""
    if not proof.harm_raised or proof.limit is None or proof.max_harm is None:
        return ""
    own = proof.highest_own or 0.0
    tolerance = (proof.limit + own) / (proof.lower + own) - 1.0
    return (
        " No model keeps to the tolerance and max_harm together. The nearest pair, to which this "
        f"one keeps, is tolerance = {upper_text(tolerance, 3)} and max_harm = "
        f"{upper_text(proof.max_harm, 3)}."
    )


def certificate_text(results: Results) -> str | None:
    """Say what is certified, or why nothing is; None for a method that certifies nothing."""
    proof = results.proof
    if proof is None:
        return why_not_certified(results) if results.method.key == CERTIFYING else None
    least, ours = bounds_text(proof.min_risk, proof.risk)
    lowest, penalised = bounds_text(proof.lower, proof.upper)
    if results.model.kind == ADDITIVE:
        return (
            f"Certified: no {class_of_models(results)} can bring the "
            f"{_certified_risk(results, proof)} plus its penalty below {lowest}. This model has at "
            f"most {penalised}{_mean_within_limit(proof)} (optimality gap "
            f"{upper_text(proof.gap, 1)}); of that its penalty is "
            f"{proof.penalty:.3g}, and no model that is at least as smooth can bring the risk "
            f"itself below {least}.{_beyond_rounding(results, proof)}"
        )
    return (
        f"Certified: no {results.model.kind} model on these features with a parameter norm no "
        f"larger than this model's can bring the {_certified_risk(results, proof)} below {least}. "
        f"This model has at most {ours}. With the ridge penalty of {proof.ridge:g} this holds for "
        f"all parameters: none is below {lowest}, and this model has at most {penalised}"
        f"{_mean_within_limit(proof)} (optimality gap {upper_text(proof.gap, 1)})."
        f"{_beyond_rounding(results, proof)}"
    )


def _mean_within_limit(proof: Certificate) -> str:
    """Add the second claim, of a model with a tolerance: its mean risk, penalty included."""
    if proof.limit is None or proof.mean is None or proof.min_mean is None:
        return ""
    least, ours = bounds_text(proof.min_mean, proof.mean)
    harm, instead = "", ""
    if proof.max_harm is not None:
        most = lower_text(proof.max_harm, LIMIT_DIGITS)
        harm = f" and no group more than {most} above the plain model"
    if proof.harm_raised:
        instead = (
            ". No model is within both the tolerance and max_harm as they were given: both limits "
            f"are {upper_text(proof.harm_raised, 3)} higher, which is the nearest pair"
        )
    return (
        f", as allowed; no model with at most {lower_text(proof.limit, LIMIT_DIGITS)}{harm} has a "
        f"mean, penalty included, below {least}, and this one has at most {ours}{instead}"
    )


def class_of_models(results: Results) -> str:
    """Name the models that a certificate speaks about."""
    kind = f"{results.model.kind} model on these features"
    if results.model.kind != ADDITIVE:
        return kind
    ways = [f"“{column}” only {way}" for column, way in results.model.monotone.items()]
    goes = f", and in which the score goes with {listed(ways)}," if ways else ""
    return f"{kind} with this smoothing{goes}"


def _certified_risk(results: Results, proof: Certificate) -> str:
    """Say which risk is meant: a mixture of groups has one that no single group needs to have."""
    risk = f"training risk ({LOSS_NAMES[results.loss]})"
    if proof.highest_own is not None:
        risk = f"excess of the {risk} over what the group's own best model reaches"
    options = results.method.options if results.method.key == CERTIFYING else {}
    floor, kept = options.get("min_weight"), options.get("keep_share")
    terms = [f"every group has a weight of at least {floor:g}"] if floor else []
    if isinstance(kept, float) and kept:
        terms.append(f"every group keeps {percent(kept)} of its share of the records")
    if results.small_groups and proof.is_of_groups:
        names = counted(len(results.small_groups), "group")
        terms.append(f"the {names} too small to be trained for: the share of their records")
    if not terms:
        return f"worst {proof.players}'s {risk}"
    return (
        f"highest {risk} of a mixture, which is no single group's risk (one group has all the "
        f"weight but this: {'; '.join(terms)}),"
    )


def _beyond_rounding(results: Results, proof: Certificate) -> str:
    """Add what the method predicts where rounding errors keep the certificate from showing it."""
    left, wanted = results.gap_left, results.method.options.get("optimality_gap")
    reached = isinstance(wanted, float) and proof.gap <= wanted
    if left is None or left >= proof.gap or reached:
        return ""
    return (
        " Rounding errors of these columns allow no closer certificate. The risks' second-order "
        "models predict, without a certificate, that at most "
        f"{upper_percent(left)} is left to gain."
    )


def why_not_certified(results: Results) -> str:
    """Say why there is no certificate, and what would give one."""
    if results.is_audit:
        reason = "the model was trained elsewhere, and only its predictions are known."
    elif results.model.hidden:
        reason = "a network's risk is not convex."
    elif results.loss == "brier":
        reason = (
            "the Brier loss of a softmax is not convex in the parameters. With loss = "
            '"cross_entropy" and a ridge there can be one.'
        )
    elif results.privacy is not None:
        reason = "it needs exact sums, and these have noise for privacy."
    elif results.model.members > 1:
        reason = "the returned model is a mixture of models."
    elif results.method.key != CERTIFYING:
        reason = (
            f"{results.method.name} gives none. With a ridge in [model], 'fedminmax train "
            "--certify' adds one after its rounds."
        )
    elif results.method.participation < 1.0:
        reason = "it needs rounds in which every site takes part."
    else:
        reason = (
            "it needs a ridge in [model], such as 1e-4, rounds in which every site takes part, and "
            "few enough features for second derivatives. With more features, --certify certifies "
            "what one more round can."
        )
    return f"{NOT_CERTIFIED}: {reason}"


def validation_text(results: Results) -> str:
    """Say which round validation records chose, and by which risk; "" if there are none."""
    validation = results.validation
    if validation is None:
        return ""
    records = f"{sum(validation.rows):,} validation records"
    if validation.chosen is None or validation.last is None:
        return (
            f"{records} chose no round, because none was measured for every group that counts. The "
            "returned model is the last one."
        )
    chosen, last = validation.chosen.risk or 0.0, validation.last.risk or 0.0
    tie = ", which is not clearly lower" if last < chosen else ""
    if last < chosen - TIE * (validation.chosen.standard_error or 0.0):
        tie = (
            ", but some groups have too few validation records to judge a network by, so it stays "
            "the linear model that it started from; set validation = 0.3 in [data]"
        )
    verb = "chose" if results.iterate == Iterate.BEST.value else "would have chosen"
    risk = "risk" if results.own_risks is None else "excess"
    return (
        f"{records} {verb} the model after round {validation.chosen.round:,} of "
        f"{results.method.rounds:,}. Its validation {risk} is "
        f"{risk_with_error(validation.chosen)}; after round {validation.last.round:,} it is "
        f"{risk_with_error(validation.last)}{tie}."
    )


def risk_with_error(risk: RiskAfterRound) -> str:
    """Format a worst risk, its standard error and its group."""
    whose = "small groups together" if risk.group is None else risk.group
    return f"{risk.risk:.4g} {PLUS_MINUS} {risk.standard_error:.2g} ({whose})"


def weights_text(results: Results) -> str:
    """Say whether a site-level method could have reached the final group weights; "" if unknown."""
    reach = results.reach
    if reach is None:
        return ""
    heaviest = sorted(zip(reach.weights, results.groups, strict=True), reverse=True)[:MAX_WEIGHTS]
    shown = listed([f"{percent(weight)} on “{name}”" for weight, name in heaviest if weight])
    final = f"the groups' final weights ({shown})"
    if reach.distance <= REACHED:
        return f"A method that is minimax over sites could also have reached {final}."
    if reach.distance <= NEARLY_REACHED:
        return f"A method that is minimax over sites could nearly have reached {final}."
    return (
        f"A method that is minimax over sites could not have reached {final}. The nearest weights "
        f"that it can reach are {reach.distance:.2f} away, on a scale from 0 to 1.41."
    )


def cost_text(results: Results) -> str:
    """Say how many rounds the run took and how long its messages are; "" if unknown."""
    cost = results.cost
    if cost is None:
        return ""
    rounds = results.method.rounds
    start = f"{results.method.name} took {counted(rounds, 'round')}"
    if cost.class_rounds:
        before = counted(cost.class_rounds, "round")
        start += f", after {before} in which smoothing and pairs were chosen"
    if cost.usual_rounds is not None:
        low, high = cost.usual_rounds
        start += f"; the estimate was {low:,} to {high:,}"
    each = f"{size_text(cost.bytes_up)} up and {size_text(cost.bytes_down)} down per round"
    if cost.counted_up is None:
        total = size_text(rounds * results.method.participation * cost.bytes_up)
        return f"{start}. Over a network a site's messages are {each}, {total} up in total."
    up, down = size_text(cost.counted_up), size_text(cost.counted_down or 0)
    counted_bytes = f"{up} up and {down} down per round"
    compared = "" if counted_bytes == each else f"; expected: {each}"
    whole = ""
    if cost.total_up is not None:
        whole = f"; in all {size_text(cost.total_up)} up, {size_text(cost.total_down or 0)} down"
    return f"{start}. A site's messages were {counted_bytes}{compared}{whole}."


def is_excess(results: Results) -> bool:
    """Whether the run was played for the highest excess."""
    return results.method.options.get("objective") == EXCESS


def worst_name(results: Results) -> str:
    """Name what the run minimises the highest value of."""
    return "highest excess of a group" if is_excess(results) else "worst group"


@dataclass(frozen=True)
class _OwnRisk:
    group: str
    plain: float
    own: float

    @property
    def gain(self) -> float:
        return self.plain - self.own


def _each(results: Results) -> list[_OwnRisk]:
    """Return those of groups that training could focus on."""
    known = results.own_risks
    if known is None:
        return []
    each = map(_OwnRisk, results.groups, known.plain, known.own)
    return [one for one in each if one.group not in results.small_groups]


def own_risks_text(results: Results) -> str:
    """Say what could be removed, and of which group most; "" if nobody looked."""
    each = _each(results)
    if not each:
        return ""
    most = max(each, key=lambda one: one.gain)
    none = sum(one.gain == 0.0 for one in each)
    if not most.gain:
        return (
            "For no group does a model of its own, of this kind, reach a lower risk than the plain "
            "model on records that it has not seen: nothing of the groups' training risk is known "
            "to be avoidable."
        )
    others = f"; for {counted(none, 'group')} nothing is" if none else ""
    return (
        f"Of the plain model's training risk of “{most.group}” ({most.plain:.{DIGITS}f}), "
        f"{most.gain:.{DIGITS}f} is avoidable, more than of any other group: so much lower is its "
        "own best model of this kind, on records that it has not seen. The rest, "
        f"{_share(most)}, no model of this kind is known to remove{others}."
    )


def own_risks_table(results: Results) -> Table | None:
    """Return a line per group; None if nobody looked."""
    each = _each(results)
    if not each:
        return None
    return Table(
        f"Training risk by group ({LOSS_NAMES[results.loss]}), and what of it the group's own best "
        "model of this kind leaves on records that it has not seen",
        ("group", "standard", "own best model", "of it not avoidable"),
        tuple(
            (
                one.group,
                f"{one.plain:.{DIGITS}f}",
                f"{one.own:.{DIGITS}f}",
                _share(one) if one.plain else NOTHING,
            )
            for one in each
        ),
    )


def _share(one: _OwnRisk) -> str:
    return percent(one.own / one.plain)
