"""Arrow columns to the suite's normal form (interop/doc.go)."""

import datetime
import math

import pyarrow as pa

import worker

_EPOCH = datetime.datetime(1970, 1, 1)
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def write_rows(table, path):
    """Write an Arrow table in the normal form and give its number of rows."""
    columns = [values(column) for column in table.columns]
    worker.write_dicts((dict(zip(table.column_names, row)) for row in zip(*columns)), path)
    return table.num_rows


def values(column):
    """The cells of one Arrow column in the normal form."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = kind.value_type
    if pa.types.is_floating(kind):
        return [_float(v) for v in column.to_pylist()]
    if pa.types.is_decimal(kind):
        return [None if v is None else format(v, "f") for v in column.to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [None if v is None else v.hex() for v in column.to_pylist()]
    if pa.types.is_date32(kind):
        return [None if v is None else _date(v) for v in column.cast(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(kind):
        scale = _UNITS[kind.unit]
        return [None if v is None else timestamp(v, scale) for v in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_time32(kind) or pa.types.is_time64(kind):
        whole = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        return [None if v is None else v * 1000 // _UNITS[kind.unit] for v in column.cast(whole).to_pylist()]
    if pa.types.is_nested(kind):
        return [_cell(v) for chunk in column.chunks for v in chunk]
    return column.to_pylist()


def _cell(scalar):
    """One cell of any type: lists are lists, structs objects, maps lists of key and value."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_map(kind):
        pairs = scalar.values
        return [[_cell(k), _cell(v)] for k, v in zip(pairs.field(0), pairs.field(1))]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_cell(v) for v in scalar.values]
    if pa.types.is_struct(kind):
        return {kind.field(i).name: _cell(scalar[i]) for i in range(kind.num_fields)}
    return values(pa.chunked_array([pa.array([scalar], kind)]))[0]


def timestamp(count, scale):
    """ISO local date-time with nine fraction digits of a count of 1/scale seconds since 1970."""
    seconds, fraction = divmod(count, scale)
    moment = _EPOCH + datetime.timedelta(seconds=seconds)
    return f"{moment.isoformat()}.{fraction * (10**9 // scale):09d}"


def _date(days):
    return (_EPOCH + datetime.timedelta(days=days)).date().isoformat()


def _float(v):
    if v is None or math.isfinite(v):
        return v
    return "NaN" if math.isnan(v) else "Infinity" if v > 0 else "-Infinity"
