"""Spark with the Iceberg runtime as a judge of an exported table.

Requests carry "route" and its address: "directory" with "warehouse" (folder of the databases' folders, read by
Iceberg's Hadoop catalog) or "rest" with "catalog" (URI); "namespace" and "table"; "snapshot" (0 is the current).
The jar of the runtime is the program's first argument, a scratch folder its second.
"""

import datetime
import hashlib
import math
import sys

from pyspark.sql import SparkSession, types

import worker

_SESSION = None
_CATALOGS = set()


def _spark():
    global _SESSION
    if _SESSION is None:
        builder = SparkSession.builder.master("local[2]").appName("calve-interop")
        settings = {
            "spark.jars": sys.argv[1],
            "spark.local.dir": sys.argv[2],
            "spark.sql.warehouse.dir": sys.argv[2] + "/warehouse",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.ansi.enabled": "true",
            "spark.sql.timestampType": "TIMESTAMP_NTZ",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        _SESSION = builder.getOrCreate()
        _SESSION.sparkContext.setLogLevel("ERROR")
    return _SESSION


def _table(request):
    spark = _spark()
    address = request["catalog"] if request["route"] == "rest" else request["warehouse"]
    name = "c" + hashlib.sha1(address.encode()).hexdigest()[:8]
    if name not in _CATALOGS:
        prefix = "spark.sql.catalog." + name
        spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(prefix + ".cache-enabled", "false")
        if request["route"] == "rest":
            spark.conf.set(prefix + ".type", "rest")
            spark.conf.set(prefix + ".uri", address)
            spark.conf.set(prefix + ".io-impl", "org.apache.iceberg.hadoop.HadoopFileIO")
        else:
            spark.conf.set(prefix + ".type", "hadoop")
            spark.conf.set(prefix + ".warehouse", address)
        _CATALOGS.add(name)
    at = f" VERSION AS OF {request['snapshot']}" if request.get("snapshot") else ""
    return f"{name}.`{request['namespace']}`.`{request['table']}`{at}"


def _text(expression, kind):
    """A value as text of the normal form (the suite's reader is lenient on the shape of times)."""
    if kind in ("BINARY", "VARBINARY", "BYTES"):
        return f"lower(hex({expression}))"
    return f"CAST({expression} AS STRING)"


def _nested(value, kind):
    """A value of a nested type, or one inside of it, in the normal form."""
    if value is None:
        return None
    if isinstance(kind, types.StructType):
        return {f.name: _nested(value[i], f.dataType) for i, f in enumerate(kind.fields)}
    if isinstance(kind, types.ArrayType):
        return [_nested(v, kind.elementType) for v in value]
    if isinstance(kind, types.MapType):
        return [[_nested(k, kind.keyType), _nested(v, kind.valueType)] for k, v in value.items()]
    if isinstance(kind, types.BinaryType):
        return bytes(value).hex()
    if isinstance(kind, types.DecimalType):
        return format(value, "f")
    if isinstance(kind, types.TimestampType):  # Spark gives it in the zone of this process
        return value.astimezone(datetime.timezone.utc).replace(tzinfo=None).isoformat()
    if isinstance(kind, (types.DateType, types.TimestampNTZType)):
        return value.isoformat()
    if isinstance(kind, (types.FloatType, types.DoubleType)) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


_NESTED = ("ARRAY", "MAP", "MULTISET", "ROW")


def warm(_):
    """Start the session: it takes seconds, and the suite has other things to do meanwhile."""
    _spark()


def read(request):
    """All rows of the snapshot, to the file "out"."""
    columns = request["columns"]
    parts = [f"`{c['name']}`" if c["kind"] in _NESTED else _text(f"`{c['name']}`", c["kind"]) for c in columns]
    frame = _spark().sql(f"SELECT {', '.join(parts)} FROM {_table(request)}")
    kinds = [f.dataType if c["kind"] in _NESTED else None for c, f in zip(columns, frame.schema.fields)]
    names = [c["name"] for c in columns]
    rows = [[_nested(v, kind) if kind else v for v, kind in zip(row, kinds)] for row in frame.collect()]
    worker.write_dicts((dict(zip(names, row)) for row in rows), request["out"])
    return {"rows": len(rows)}


def count(request):
    """How many rows have "column" equal to "value"."""
    kind, text = request["kind"], request["value"]
    if kind in ("BINARY", "VARBINARY", "BYTES"):
        value = f"X'{text}'"
    elif kind in ("CHAR", "VARCHAR", "STRING"):
        value = "decode(X'" + text.encode("utf-8").hex() + "', 'UTF-8')"
    elif kind == "TIMESTAMP":
        value = f"TIMESTAMP_NTZ '{text[:26]}'"
    elif kind == "TIMESTAMP_LTZ":
        value = f"TIMESTAMP_LTZ '{text[:26]}+00:00'"
    else:
        value = worker.sql_literal(request)
    query = f"SELECT count(*) FROM {_table(request)} WHERE `{request['column']}` = {value}"
    return {"count": _spark().sql(query).collect()[0][0]}


def profile(request):
    """Row count, and per column the count, least, greatest and (where asked) sum, as one row in "out"."""
    parts, names = ["count(*)"], ["rows"]
    for column in request["columns"]:
        name, kind = f"`{column['name']}`", column["kind"]
        parts.append(f"count({name})")
        names.append(column["name"] + "#count")
        if column["bounds"]:
            parts += [_text(f"min({name})", kind), _text(f"max({name})", kind)]
            names += [column["name"] + "#min", column["name"] + "#max"]
        if column.get("sum"):
            parts.append(f"CAST(sum(CAST({name} AS DECIMAL(38,{column['scale']}))) AS STRING)")
            names.append(column["name"] + "#sum")
    rows = _spark().sql(f"SELECT {', '.join(parts)} FROM {_table(request)}").collect()
    worker.write_dicts((dict(zip(names, row)) for row in rows), request["out"])


def describe(request):
    """Column names and types in Spark's words."""
    frame = _spark().sql(f"SELECT * FROM {_table(request)}")
    return {"fields": [{"name": f.name, "type": f.dataType.simpleString()} for f in frame.schema.fields]}


if __name__ == "__main__":
    worker.serve({"warm": warm, "read": read, "count": count, "profile": profile, "describe": describe})
