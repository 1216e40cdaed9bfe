"""Check a schema from outside, from a node or a model file, before any of it is used."""

import codecs
import math
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sparsona.data.dataset import FIELD_TYPES, Field
from sparsona.data.schema.format import Format, known_separator
from sparsona.data.schema.schema import Category, Number, Schema
from sparsona.errors import WireError, printable

MOST_INPUTS = 10**8
"""Limit of numbers per sample, and of a vocabulary."""
MOST_NAMES = 10**6
"""Limit of columns, categories and classes of one schema together."""
LONGEST_NAME = 10_000

_SCHEMA = TypeAdapter(Schema)
_CHECKED: dict[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (Number, Category, Format, Field)}


def told_schema(tree: Any) -> Schema:
    """Return the schema of an untrusted JSON tree; raises `WireError` for invalid types, sizes or numbers.

    >>> told_schema({"task": "regression", "targets": [["y"]], "features": []})
    Traceback (most recent call last):
    ...
    sparsona.errors.WireError: the schema is not valid: targets.0: Input should be a valid string
    """
    try:
        found = Schema.from_json(tree)
        # pydantic takes an object of a class as it is: so each is given by its fields
        features = tuple(_CHECKED[type(one)].validate_python(vars(one)) for one in found.features)
        written = _CHECKED[Format].validate_python(vars(found.format))
        fields = tuple(_CHECKED[Field].validate_python(vars(one)) for one in found.fields)
        schema = _SCHEMA.validate_python({**vars(found), "features": features, "format": written, "fields": fields})
    except ValidationError as error:
        raise WireError(f"the schema is not valid: {first_problem(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise WireError(f"the schema is not valid ({printable(error, 200)})") from None
    problem = _problem(schema)
    if problem:
        raise WireError(f"the schema is not valid: {problem}")
    return schema


def first_problem(error: ValidationError) -> str:
    """Return the first problem of an untrusted tree, in one printable line without the value."""
    first = error.errors(include_url=False, include_input=False)[0]
    return printable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", 200)


def _problem(schema: Schema) -> str:
    numbers = [*schema.center, *schema.mean]
    scales = [*schema.spread, *schema.std]
    names = [*schema.targets, *schema.classes]
    for feature in schema.features:
        names.append(feature.column)
        if isinstance(feature, Number):
            numbers.append(feature.mean)
            scales.append(feature.std)
        elif isinstance(feature, Category):
            names += feature.values
    if len(names) > MOST_NAMES or any(len(name) > LONGEST_NAME for name in names):
        return f"at most {MOST_NAMES} names of {LONGEST_NAME} characters are read"
    if not all(map(math.isfinite, numbers)) or not all(math.isfinite(one) and one > 0 for one in scales):
        return "a mean is not finite, or a deviation is not above 0"
    if any(size < 1 for size in schema.shape) or not 0 <= schema.vocabulary <= MOST_INPUTS:
        return "a size is below 1, or too large"
    if any(one.dtype not in FIELD_TYPES or any(size < 1 for size in one.shape) for one in schema.fields):
        return "an input is of an unknown type or shape"
    if math.prod(schema.input_shape) > MOST_INPUTS:
        return f"a sample of {math.prod(schema.input_shape)} numbers, at most {MOST_INPUTS} can be used"
    if len(schema.center) != len(schema.spread) or len(schema.mean) != len(schema.std):
        return "there are more means than deviations, or fewer"
    if not schema.targets or len(set(schema.columns)) < len(schema.columns):
        return "it has no target, or two columns of one name"
    if schema.task == "classification" and len(set(schema.classes)) < max(1, len(schema.classes)):
        return "it has no classes, or two of one name"
    numeric = [value for one in schema.features if isinstance(one, Category) and one.numeric for value in one.values]
    if not all(map(_is_number, [*numeric, *(schema.classes if schema.numeric_classes else ())])):
        return "a category or class that should be a number is none"
    if not _is_usable(schema.format):
        return "the format of its files is unknown"
    return ""


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_usable(written: Format) -> bool:
    try:
        codecs.lookup(written.encoding)
        return known_separator(written.separator) == written.separator and len(written.decimal) == 1
    except (LookupError, ValueError):
        return False
