"""Checks across keys of a configuration: whether they are consistent."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from fedminmax.config.file_format import check_format, spellings
from fedminmax.config.messages import toml_key
from fedminmax.config.schema import Kind
from fedminmax.config.sections import (
    COLUMNS,
    EFFECTS,
    LINEAR_OF_TASK,
    NETWORK,
    NO_BASELINE,
    ConfigSections,
    DataSection,
    FeatureSection,
    GroupsSection,
)
from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.core.noise import Unit
from fedminmax.core.small_groups import SmallGroupRule
from fedminmax.core.text import did_you_mean
from fedminmax.methods.card import Pace, check_private_unit
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.shared.look_ahead import LookAhead


def check_sections(sections: ConfigSections) -> None:
    """Refuse a configuration that contradicts itself."""
    _check_files(sections.data)
    _check_target(sections.data)
    for column, section in sections.features.items():
        _check_feature(column, section, sections)
    _check_groups(sections.groups, sections)
    _check_maps(sections)
    _check_model(sections)
    _check_method(sections)
    if sections.privacy is not None:
        _check_privacy(sections, sections.privacy.unit)


def _check_files(data: DataSection) -> None:
    if (data.file is None) == (not data.sites):
        came = "neither" if data.file is None else "both"
        raise InputError(
            f"[data] has {came} of file and [data.sites]; give a file for each site in "
            "[data.sites], or one file with its site_column"
        )
    if (data.file is None) != (data.site_column is None):
        raise InputError("[data] needs both file and site_column, or neither of them")
    for name, file in data.sites.items():
        for other, same in data.sites.items():
            if name != other and file == same:
                raise InputError(
                    f"[data.sites] '{name}' and '{other}' are both {file}; give each its own file"
                )
    if data.person_column in (data.target, data.site_column) and data.person_column:
        raise InputError(
            f"[data] person_column = '{data.person_column}' is the target or the site column; "
            "name the column that tells persons apart"
        )
    if data.test and data.held_out:
        raise InputError(
            f"[data] has test files and held_out = {data.held_out:g}; remove one of them"
        )
    agreed = check_format(data.format, "[data]")
    for name, changes in data.formats.items():
        where = f"[data.formats.{toml_key(name)}]"
        files = {**data.sites, **data.test}
        if name not in files:
            raise InputError(
                f"{where} is not a site or test file; {did_you_mean(name, list(files))}"
            )
        check_format(changes.apply(agreed), where)


def _check_target(data: DataSection) -> None:
    _check_unique(data.classes, "[data] classes", data)
    if data.task == "regression" and data.classes:
        raise InputError('[data] classes are given, but task = "regression"; remove one of them')
    if data.task == "classification" and len(data.classes) < 2:
        raise InputError(
            f"[data] classes has {len(data.classes)} entries; list at least two, or set "
            'task = "regression"'
        )
    readings = data.map.get(data.target, {})
    classes = [name for name in data.classes if readings.get(name, name) == name]
    if data.positive is not None and (len(classes) != 2 or data.positive not in classes):
        raise InputError(
            f"[data] positive = '{data.positive}' is not one of two classes; "
            f"{did_you_mean(data.positive, classes)}"
        )


def _check_feature(column: str, section: FeatureSection, sections: ConfigSections) -> None:
    where = f"[features.{toml_key(column)}]"
    data = sections.data
    if column in (data.target, data.site_column, data.person_column, data.weight_column):
        raise InputError(
            f"{where} is the target, site, person or weight column; remove this section"
        )
    kind = section.kind.value
    if section.categories and section.kind is not Kind.CATEGORY:
        raise InputError(
            f'{where} has kind = "{kind}" and {len(section.categories)} categories; only a '
            "category has them: remove the list, or correct the kind"
        )
    _check_unique(section.categories, f"{where} categories", sections.data)
    if section.unit and section.kind is not Kind.NUMERIC:
        raise InputError(f'{where} has a unit, but kind = "{kind}"; only numbers have one')
    if section.format and section.kind is not Kind.DATE:
        raise InputError(f'{where} has a format, but kind = "{kind}"; only dates have one')


def _check_groups(groups: GroupsSection, sections: ConfigSections) -> None:
    twice = next((name for name in groups.columns if groups.columns.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"[groups] columns has '{twice}' twice; remove one of them")
    if sections.data.target in groups.columns:
        raise InputError(
            f"[groups] columns has the target '{sections.data.target}'; choose another column"
        )
    for section, columns in (("bands", list(groups.bands)), ("values", list(groups.values))):
        for column in columns:
            if column not in groups.columns:
                hint = did_you_mean(column, groups.columns)
                raise InputError(f"[groups.{section}] '{column}' is not among the columns; {hint}")
    for column, values in groups.values.items():
        _check_unique(values, f"[groups.values] {toml_key(column)}", sections.data)
        if column in groups.bands:
            raise InputError(
                f"[groups] has values and bands of {toml_key(column)}; remove one of them"
            )
    for column, edges in groups.bands.items():
        if sorted(set(edges)) != list(edges):
            raise InputError(
                f"[groups.bands] {toml_key(column)} = {list(edges)}; give increasing numbers"
            )
    for column in groups.columns:
        if groups.as_features and column not in sections.features:
            raise InputError(
                f"[groups] as_features = true, but [features.{toml_key(column)}] is missing; add it"
            )
    if not (groups.as_features or set(sections.features) - set(groups.columns)):
        raise InputError("[features] has no feature for the model; add one")


def _check_maps(sections: ConfigSections) -> None:
    """Refuse maps of columns without labels, and to values that are not listed."""
    data, groups = sections.data, sections.groups
    labels = dict(_labels(sections))
    for section, maps in (("data", data.map), ("groups", groups.map)):
        here = [name for name in labels if (name in groups.columns) == (section == "groups")]
        for column, readings in maps.items():
            where = f"[{section}.map.{toml_key(column)}]"
            if column not in here:
                raise InputError(
                    f"{where} is not a column whose values can be mapped there; "
                    f"{did_you_mean(column, here)}"
                )
            _check_map(readings, labels[column], where)
    for column in data.own_values:
        if column not in labels:
            raise InputError(
                f"[data] own_values has '{column}', which has no labels or groups; "
                f"{did_you_mean(column, list(labels))}"
            )


def _labels(sections: ConfigSections) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the columns whose values are labels, with those that are listed."""
    data, groups = sections.data, sections.groups
    if data.classes:
        yield data.target, data.classes
    for column, feature in sections.features.items():
        if feature.kind is Kind.CATEGORY and column not in groups.columns:
            yield column, feature.categories
    for column in groups.columns:
        if column not in groups.bands:
            yield column, groups.values.get(column, ())


def _check_map(readings: Mapping[str, str], listed: Sequence[str], where: str) -> None:
    for value, other in readings.items():
        if readings.get(other, other) != other:
            raise InputError(
                f"{where} reads '{value}' as '{other}', and '{other}' as '{readings[other]}'; "
                "name the final value"
            )
        if listed and other not in listed:
            raise InputError(
                f"{where} reads '{value}' as '{other}', which is not listed; "
                f"{did_you_mean(other, [name for name in listed if name not in readings])}"
            )


def _check_model(sections: ConfigSections) -> None:
    task, model = sections.data.task, sections.model
    wrong = {"classification": "linear", "regression": "logistic"}[task]
    if model.kind == wrong:
        right = {"linear": "logistic", "logistic": "linear"}[wrong]
        raise InputError(
            f'[model] kind = "{wrong}" does not fit {task}; give "additive", "{right}" or "mlp"'
        )
    if bool(model.hidden) != (model.kind == NETWORK):
        raise InputError(
            f'[model] kind = "{model.kind}" has hidden = {list(model.hidden)}; an mlp needs hidden '
            "layers such as [64, 64], other models have none"
        )
    if model.ridge and model.kind == NETWORK:
        raise InputError(
            f"[model] ridge = {model.ridge:g} is a penalty for logistic, linear and additive "
            "models; remove it, or choose one of these"
        )
    _check_additive(sections)
    if (model.loss == "squared_error") != (task == "regression"):
        fitting = '"squared_error"' if task == "regression" else '"brier" or "cross_entropy"'
        raise InputError(f'[model] loss = "{model.loss}" does not fit {task}; give {fitting}')


def _check_additive(sections: ConfigSections) -> None:
    model = sections.model
    if model.inputs == EFFECTS:
        _check_effects(sections)
    given = {
        "pairs": bool(model.pairs) and not model.has_codes,
        "smoothness": model.smoothness != 1.0 and not model.has_codes,
        "monotone": bool(model.monotone) and not model.is_additive,
    }
    for key in (key for key, is_wrong in given.items() if is_wrong):
        raise InputError(
            f'[model] {key} is for kind = "additive", not "{model.kind}"; remove one of them'
        )
    if not model.is_additive:
        return
    if model.ridge == 0.0:
        raise InputError(
            '[model] ridge = 0, but kind = "additive" needs a small one; remove it, or give 1e-6'
        )
    if sections.privacy is not None:
        linear = LINEAR_OF_TASK[sections.data.task]
        raise InputError(
            '[model] kind = "additive", but its bins and its smoothing are chosen from counts and '
            "sums without noise, which the promise in [privacy] does not cover; set kind = "
            f'"{linear}"'
        )
    if model.monotone:
        _check_monotone(sections)


def _check_effects(sections: ConfigSections) -> None:
    """Refuse effects as inputs of other models than networks, and under a privacy guarantee."""
    if sections.model.kind != NETWORK:
        raise InputError(
            f'[model] inputs = "{EFFECTS}" is for kind = "{NETWORK}", not '
            f'"{sections.model.kind}"; remove one of them'
        )
    if sections.privacy is not None:
        raise InputError(
            f'[model] inputs = "{EFFECTS}", but effects are found from counts and sums without '
            f"noise, which the promise in [privacy] does not cover; remove it, or give "
            f'"{COLUMNS}"'
        )


def _check_monotone(sections: ConfigSections) -> None:
    """Refuse columns without an order, targets without one score, and methods that ignore it."""
    model, data, method = sections.model, sections.data, sections.method
    features = {
        column: feature
        for column, feature in sections.features.items()
        if sections.groups.as_features or column not in sections.groups.columns
    }
    for column in model.monotone:
        if column not in features:
            raise InputError(
                f"[model] monotone has '{column}', which is no feature; "
                f"{did_you_mean(column, list(features))}"
            )
        if features[column].kind is Kind.CATEGORY:
            raise InputError(
                f"[model] monotone has '{column}', which is a category; only numbers, dates and "
                "booleans have an order: remove it, or correct the kind"
            )
    if len(data.classes) > 2 and len({*data.classes} - {*data.map.get(data.target, {})}) > 2:
        raise InputError(
            f"[model] monotone is for two classes or a quantity, and [data] has "
            f"{len(data.classes)} classes; remove it"
        )
    for key, name in (("name", method.name), ("baseline", method.baseline)):
        card = CARDS.get(name or "")
        if card is not None and not issubclass(card.make, LookAhead):
            fast = [own.key for own in CARDS.values() if issubclass(own.make, LookAhead)]
            raise InputError(
                f'[model] monotone needs second derivatives, which [method] {key} = "{name}" does '
                f"not use; give {', '.join(fast)}, or remove monotone"
            )
    if method.options.get("curvature") == "false":
        raise InputError(
            "[model] monotone needs second derivatives, but [method] has curvature = false; remove "
            "one of them"
        )


def _check_method(sections: ConfigSections) -> None:
    name, baseline = sections.method.name, sections.method.baseline
    if name not in CARDS:
        raise InputError(f"[method] name = '{name}' is unknown; {did_you_mean(name, list(CARDS))}")
    if baseline is not None and baseline not in CARDS:
        hint = did_you_mean(baseline, [NO_BASELINE, *CARDS])
        raise InputError(f"[method] baseline = '{baseline}' is unknown; {hint}")
    iterate = sections.method.iterate
    chooses_itself = CARDS[name].pace is Pace.LOOK_AHEAD
    if chooses_itself and iterate is not None and iterate is not Iterate.BEST:
        raise InputError(
            f'[method] iterate = "{iterate.value}", but {name} chooses its model by '
            "itself; remove it, or choose another method"
        )
    try:
        CARDS[name].build({}, sections.method.options)
    except InputError as error:
        raise InputError(f"[method] {error}") from error


def _check_privacy(sections: ConfigSections, unit: Unit) -> None:
    """Refuse what a privacy guarantee does not cover."""
    for column, section in sections.features.items():
        if section.kind is Kind.CATEGORY and not section.categories:
            raise InputError(
                f"[features.{toml_key(column)}] has no categories, and counts to agree on them are "
                "not covered by the promise in [privacy]; list them (init --list-categories)"
            )
    method, options = sections.method, sections.method.options
    check_private_unit(CARDS[method.name].build({}, options), unit)
    if options.get("curvature") == "true":
        raise InputError(
            "[method] curvature = true, but curvature sums cannot keep the promise in [privacy]; "
            "remove one of them"
        )
    if method.baseline is not None:
        raise InputError(
            f'[method] baseline = "{method.baseline}", but a second model would spend the budget '
            "in [privacy] again; train it by itself, with a budget of its own"
        )
    if sections.groups.small is SmallGroupRule.MERGE:
        raise InputError(
            '[groups] small = "merge", but one row can decide which groups are merged, and that is '
            'not covered by the promise in [privacy]; set small = "by_size"'
        )
    if method.participation < 1:
        raise InputError(
            f"[method] participation = {method.participation:g}, but the promise in [privacy] "
            "counts on the noise of all sites; give 1"
        )


def check_covered(*, certify: bool, validation: float) -> None:
    """Refuse to ask rows for more than a privacy guarantee covers."""
    if certify:
        raise InputError(
            "a certificate needs sums without noise, and [privacy] promises noise; remove one of "
            "them"
        )
    if validation:
        raise InputError(
            f"validation = {validation:g}, but losses on validation rows are not covered by the "
            "promise in [privacy]; set validation = 0, rounds are fixed beforehand"
        )


def _check_unique(values: Sequence[str], where: str, data: DataSection) -> None:
    """Refuse a value that is listed twice, in the same spelling or in another one."""
    for index, value in enumerate(values):
        if value in values[:index]:
            raise InputError(f"{where} has '{value}' twice; remove one of them")
    same = "folded" if data.merge_spellings else "value"
    first: dict[str, str] = {}
    written = spellings(pl.Series(values, dtype=pl.String))
    for key, spelled in written.select(same, "spelled").rows():
        other = first.setdefault(key, spelled)
        if other != spelled:
            raise InputError(
                f"{where} has '{other}' and '{spelled}', which are read as one value; remove one "
                "of them"
            )
