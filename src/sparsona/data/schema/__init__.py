"""What an owner's columns mean: declared by the owner, understood row by row, agreed on by all."""

from sparsona.data.schema.agreed import schema_of
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.description import describe_rows
from sparsona.data.schema.exchange import Agreement, agree, apply, exchange, scaled_alone
from sparsona.data.schema.roles import ColumnSplit, along_of
from sparsona.data.schema.rows import Rows, features_of, joined, understand
from sparsona.data.schema.schema import Category, Feature, Number, Schema, published_schema
from sparsona.data.schema.table import Table, Tables

__all__ = [
    "Agreement",
    "Category",
    "ColumnSplit",
    "Columns",
    "Feature",
    "Number",
    "Rows",
    "Schema",
    "Table",
    "Tables",
    "agree",
    "along_of",
    "apply",
    "describe_rows",
    "exchange",
    "features_of",
    "joined",
    "published_schema",
    "scaled_alone",
    "schema_of",
    "understand",
]
