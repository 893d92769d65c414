"""PyIceberg as a judge of an exported table.

Requests carry "route" and its address: "directory" with "location" (the table's folder; the current version
is read from version-hint.text) or "rest" with "catalog" (URI), "namespace" and "table"; "s3" (endpoint, keys)
where files are on S3; "snapshot" (0 is the current one).
"""

import decimal
import json

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import StaticTable

import arrow_rows
import worker

decimal.getcontext().prec = 80  # sums of wide decimals stay exact


def _properties(request):
    s3 = request.get("s3")
    if not s3:
        return {}
    return {
        "s3.endpoint": s3["endpoint"],
        "s3.access-key-id": s3["access"],
        "s3.secret-access-key": s3["secret"],
        "s3.region": s3["region"],
        "s3.force-virtual-addressing": "false",
    }


def _table(request):
    properties = _properties(request)
    if request["route"] == "rest":
        catalog = load_catalog("calve", type="rest", uri=request["catalog"], **properties)
        return catalog.load_table((request["namespace"], request["table"]))
    folder = request["location"].rstrip("/") + "/metadata"
    hint = PyArrowFileIO(properties).new_input(folder + "/version-hint.text").open().read().decode().strip()
    return StaticTable.from_metadata(f"{folder}/v{hint}.metadata.json", properties)


def _arrow(request, **scan):
    return _table(request).scan(snapshot_id=request.get("snapshot") or None, **scan).to_arrow()


def read(request):
    """All rows of the snapshot, to the file "out"."""
    return {"rows": arrow_rows.write_rows(_arrow(request), request["out"])}


def count(request):
    """How many rows have "column" equal to "value", planned by PyIceberg with the exported statistics."""
    value = worker.literal(request["kind"], request["value"])
    return {"count": _arrow(request, row_filter=EqualTo(request["column"], value)).num_rows}


def profile(request):
    """Row count, and per column the count, least, greatest and (where asked) sum, as one row in "out"."""
    table = _arrow(request)
    answer = {"rows": table.num_rows}
    for column in request["columns"]:
        name, data = column["name"], table.column(column["name"])
        present = len(data) - data.null_count
        answer[name + "#count"] = present
        if column["bounds"]:
            order = pc.sort_indices(data.cast(pa.large_binary()) if pa.types.is_string(data.type) else data)
            ends = [order[0].as_py(), order[present - 1].as_py()] if present else []  # nulls are sorted to the end
            low, high = arrow_rows.values(data.take(pa.array(ends))) if ends else (None, None)
            answer[name + "#min"], answer[name + "#max"] = low, high
        if column.get("sum"):
            answer[name + "#sum"] = _sum(data)
    worker.write_dicts([answer], request["out"])


def _sum(data):
    present = [v for v in data.to_pylist() if v is not None]
    return format(sum(present[1:], present[0]), "f" if pa.types.is_decimal(data.type) else "d") if present else None


def describe(request):
    """Columns with ids, Iceberg types and whether they are required; partition fields; the snapshots."""
    table = _table(request)
    schema = table.schema()
    spec = table.spec()
    fields = [
        {"name": f.name, "type": str(f.field_type), "id": f.field_id, "required": f.required} for f in schema.fields
    ]
    partition = [f"{schema.find_column_name(f.source_id)}:{f.transform}" for f in spec.fields]
    return {
        "fields": fields,
        "partitionKeys": partition,
        "formatVersion": table.format_version,
        "snapshots": [s.snapshot_id for s in table.metadata.snapshots],
        "current": table.metadata.current_snapshot_id or 0,
    }


def make(request):
    """Write the {"row"} lines of the file "in" as a new table at "location": the suite's control table."""
    kinds = {c["name"]: c for c in request["columns"]}
    with open(request["in"], encoding="utf-8") as lines:
        rows = [json.loads(line)["row"] for line in lines]
    arrays, fields = [], []
    for name, column in kinds.items():
        text = [None if r[name] is None else _text(r[name]) for r in rows]
        cells = [None if v is None else worker.literal(column["kind"], v) for v in text]
        if column["kind"] in ("FLOAT", "DOUBLE"):
            cells = [None if v is None else float(v) for v in cells]
        fields.append(pa.field(name, _arrow_type(column), nullable=name != "id"))
        arrays.append(pa.array(cells, fields[-1].type))
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    catalog = load_catalog("make", type="sql", uri="sqlite:///" + request["database"], **_properties(request))
    catalog.create_namespace("judged")
    made = catalog.create_table("judged.control", table.schema, location=request["location"])
    made.append(table)
    return {"metadata": made.metadata_location}


def _text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def _arrow_type(column):
    kind = column["kind"]
    plain = {
        "BOOLEAN": pa.bool_(), "TINYINT": pa.int32(), "SMALLINT": pa.int32(), "INT": pa.int32(), "BIGINT": pa.int64(),
        "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"),
        "TIMESTAMP_LTZ": pa.timestamp("us", "UTC"), "BINARY": pa.binary(), "VARBINARY": pa.binary(), "BYTES": pa.binary(),
    }  # fmt: skip
    if kind == "DECIMAL":
        return pa.decimal128(column["precision"], column["scale"])
    return plain.get(kind, pa.string())


if __name__ == "__main__":
    worker.serve({"make": make, "read": read, "count": count, "profile": profile, "describe": describe})
