"""What a configuration's sections say of the columns, and what values are read as.

A value that is mapped to another one cannot occur: it is not among the classes, group values or
categories, even if the configuration still lists it.
"""

from collections.abc import Iterator, Mapping, Sequence

from fedminmax.core.errors import InputError
from fedminmax.core.small_groups import SmallGroupRule
from fedminmax.data.tables.config_sections import ConfigSections
from fedminmax.data.tables.schema import Feature, Kind, MissingGroup, Protected, Schema, Target
from fedminmax.data.tables.wording import did_you_mean, toml_key


def schema_of(sections: ConfigSections) -> Schema:
    """Return the schema of a configuration."""
    data, groups = sections.data, sections.groups
    maps = {**data.map, **groups.map}

    def listed(column: str, values: Sequence[str]) -> tuple[str, ...]:
        own = maps.get(column, {})
        return tuple(value for value in values if own.get(value, value) == value)

    return Schema(
        target=Target(data.target, listed(data.target, data.classes)),
        features=tuple(
            Feature(column, Kind(own.kind), listed(column, own.categories), own.format)
            for column, own in sections.features.items()
            if groups.as_features or column not in groups.columns
        ),
        protected=tuple(
            Protected(
                column,
                tuple(groups.bands.get(column, ())),
                listed(column, groups.values.get(column, ())),
            )
            for column in groups.columns
        ),
        protected_as_features=groups.as_features,
        missing_group=MissingGroup(groups.missing),
        minimum_group_size=groups.minimum_size,
        missing_values=tuple(data.missing_values),
        unlisted_group=MissingGroup(groups.unlisted),
        merge_spellings=data.merge_spellings,
        small_groups=SmallGroupRule(groups.small),
        person_column=data.person_column,
        maps=maps,
        own_values=tuple(data.own_values),
        missing_by_column={
            column: tuple(own.missing_values)
            for column, own in sections.features.items()
            if own.missing_values
        },
        units={column: own.unit for column, own in sections.features.items() if own.unit},
    )


def check_maps(sections: ConfigSections) -> None:
    """Refuse maps of columns without labels, and to values that are not listed."""
    data, groups = sections.data, sections.groups
    known = dict(_labels(sections))
    for section, maps in (("data", data.map), ("groups", groups.map)):
        here = [name for name in known if (name in groups.columns) == (section == "groups")]
        for column, own in maps.items():
            where = f"[{section}.map.{toml_key(column)}]"
            if column not in here:
                raise InputError(
                    f"{where} is not a column whose values can be mapped there; "
                    f"{did_you_mean(column, here)}"
                )
            _check_map(own, known[column], where)
    for column in data.own_values:
        if column not in known:
            raise InputError(
                f"[data] own_values has '{column}', which has no labels or groups; "
                f"{did_you_mean(column, list(known))}"
            )


def _labels(sections: ConfigSections) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the columns whose values are labels, with those that are listed."""
    data, groups = sections.data, sections.groups
    if data.classes:
        yield data.target, data.classes
    for column, own in sections.features.items():
        if own.kind == Kind.CATEGORY.value and column not in groups.columns:
            yield column, own.categories
    for column in groups.columns:
        if column not in groups.bands:
            yield column, groups.values.get(column, [])


def _check_map(own: Mapping[str, str], listed: Sequence[str], where: str) -> None:
    for value, other in own.items():
        if own.get(other, other) != other:
            raise InputError(
                f"{where} reads '{value}' as '{other}', and '{other}' as '{own[other]}'; name the "
                "final value"
            )
        if listed and other not in listed:
            raise InputError(
                f"{where} reads '{value}' as '{other}', which is not listed; "
                f"{did_you_mean(other, [name for name in listed if name not in own])}"
            )
