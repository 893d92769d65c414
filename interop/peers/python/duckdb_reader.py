"""DuckDB with its iceberg extension as a judge of an exported table.

Requests carry "route" and its address: "directory" with "location" (the table's folder, read through
version-hint.text by iceberg_scan) or "rest" with "catalog" (URI), "namespace" and "table"; "s3" (endpoint,
keys) where files are on S3; "snapshot" (0 is the current one).
"""

import pathlib
import sysconfig

import duckdb

import arrow_rows
import worker


_CONNECTION = None


def _connect():
    """The one connection: loading the extensions takes longer than most queries."""
    global _CONNECTION
    if _CONNECTION is None:
        off = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
        _CONNECTION = duckdb.connect(config=off)
        site = pathlib.Path(sysconfig.get_paths()["purelib"])
        for name in ("avro", "httpfs", "iceberg"):  # iceberg needs the other two
            (path,) = site.glob(f"duckdb_extension_{name}/**/{name}.duckdb_extension")
            _CONNECTION.execute(f"LOAD '{path}'")
        _CONNECTION.execute("SET TimeZone = 'UTC'")
        _CONNECTION.execute("SET threads = 2")
    return _CONNECTION


def _attach(request):
    """Make what the request needs known to the connection; a catalog is attached anew, so that nothing is stale."""
    connection = _connect()
    if request.get("s3"):
        connection.execute(
            "CREATE OR REPLACE SECRET s3 (TYPE s3, KEY_ID '{access}', SECRET '{secret}', REGION '{region}',"
            " ENDPOINT '{host}', USE_SSL false, URL_STYLE 'path')".format(**request["s3"])
        )
    if request["route"] == "rest":
        connection.execute("DETACH DATABASE IF EXISTS c")
        connection.execute(
            f"ATTACH '' AS c (TYPE iceberg, ENDPOINT '{request['catalog']}', AUTHORIZATION_TYPE 'none')"
        )


def _source(request):
    """The FROM clause of the requested table."""
    snapshot = request.get("snapshot")
    if request["route"] == "directory":
        at = f", snapshot_from_id = {snapshot}" if snapshot else ""
        return f"iceberg_scan('{request['location']}', allow_moved_paths = false{at})"
    at = f" AT (VERSION => {snapshot})" if snapshot else ""
    return f'c."{request["namespace"]}"."{request["table"]}"{at}'


def _query(request, make):
    return _connect().execute(make(_source(request))).to_arrow_table()


def read(request):
    """All rows of the snapshot, to the file "out"."""
    return {"rows": arrow_rows.write_rows(_query(request, lambda t: f"SELECT * FROM {t}"), request["out"])}


def count(request):
    """How many rows have "column" equal to "value"."""
    kind, text = request["kind"], request["value"]
    if kind in ("BINARY", "VARBINARY", "BYTES"):
        value = f"from_hex('{text}')"
    elif kind == "TIMESTAMP":
        value = f"CAST('{text[:26]}' AS TIMESTAMP)"
    elif kind == "TIMESTAMP_LTZ":
        value = f"CAST('{text[:26]}+00' AS TIMESTAMPTZ)"
    else:
        value = worker.sql_literal(request)
    table = _query(request, lambda t: f'SELECT count(*) AS n FROM {t} WHERE "{request["column"]}" = {value}')
    return {"count": table.column("n")[0].as_py()}


def profile(request):
    """Row count, and per column the count, least, greatest and (where asked) sum, as one row in "out"."""
    parts = ['count(*) AS "rows"']
    for column in request["columns"]:
        name = '"' + column["name"] + '"'
        parts.append(f"count({name}) AS \"{column['name']}#count\"")
        if column["bounds"]:
            parts.append(f"min({name}) AS \"{column['name']}#min\", max({name}) AS \"{column['name']}#max\"")
        if column.get("sum"):
            parts.append(f"CAST(sum(CAST({name} AS DECIMAL(38,{column['scale']}))) AS DECIMAL(38,{column['scale']})) AS \"{column['name']}#sum\"")
    arrow_rows.write_rows(_query(request, lambda t: f"SELECT {', '.join(parts)} FROM {t}"), request["out"])


def describe(request):
    """Column names and types in DuckDB's words. The suite asks this first of a table."""
    _attach(request)
    rows = _connect().execute(f"DESCRIBE SELECT * FROM {_source(request)}").fetchall()
    return {"fields": [{"name": r[0], "type": r[1].lower()} for r in rows]}


if __name__ == "__main__":
    worker.serve({"read": read, "count": count, "profile": profile, "describe": describe})
