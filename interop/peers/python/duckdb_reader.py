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


def _connect():
    off = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    connection = duckdb.connect(config=off)
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    for name in ("avro", "httpfs", "iceberg"):  # iceberg needs the other two
        (path,) = site.glob(f"duckdb_extension_{name}/**/{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET threads = 2")
    return connection


def _source(connection, request):
    """The FROM clause of the requested table."""
    s3 = request.get("s3")
    if s3:
        connection.execute(
            "CREATE SECRET s3 (TYPE s3, KEY_ID '{access}', SECRET '{secret}', REGION '{region}',"
            " ENDPOINT '{host}', USE_SSL false, URL_STYLE 'path')".format(**s3)
        )
    snapshot = request.get("snapshot")
    if request["route"] == "directory":
        at = f", snapshot_from_id = {snapshot}" if snapshot else ""
        return f"iceberg_scan('{request['location']}', allow_moved_paths = false{at})"
    connection.execute(
        f"ATTACH '{request.get('prefix', '')}' AS c (TYPE iceberg, ENDPOINT '{request['catalog']}',"
        " AUTHORIZATION_TYPE 'none')"
    )
    at = f" AT (VERSION => {snapshot})" if snapshot else ""
    return f'c."{request["namespace"]}"."{request["table"]}"{at}'


def _query(request, make):
    with _connect() as connection:
        return connection.execute(make(_source(connection, request))).fetch_arrow_table()


def read(request):
    """All rows of the snapshot, to the file "out"."""
    return {"rows": arrow_rows.write_rows(_query(request, lambda t: f"SELECT * FROM {t}"), request["out"])}


def count(request):
    """How many rows have "column" equal to "value"."""
    kind, text = request["kind"], request["value"]
    if kind in ("BINARY", "VARBINARY", "BYTES"):
        value = f"from_hex('{text}')"
    elif kind == "TIMESTAMP_LTZ":
        value = f"CAST('{text[:26]}+00' AS TIMESTAMPTZ)"
    else:
        value = worker.sql_literal(kind, text)
    table = _query(request, lambda t: f'SELECT count(*) AS n FROM {t} WHERE "{request["column"]}" = {value}')
    return {"count": table.column("n")[0].as_py()}


def profile(request):
    """Row count, and per column the count, least, greatest and (where asked) sum, as one row in "out"."""
    parts = ["count(*) AS \"rows\""]
    for column in request["columns"]:
        name = '"' + column["name"] + '"'
        parts.append(f"count({name}) AS \"{column['name']}#count\"")
        if column["bounds"]:
            parts.append(f"min({name}) AS \"{column['name']}#min\", max({name}) AS \"{column['name']}#max\"")
        if column.get("sum"):
            parts.append(f"CAST(sum(CAST({name} AS DECIMAL(38,{column['scale']}))) AS DECIMAL(38,{column['scale']})) AS \"{column['name']}#sum\"")
    arrow_rows.write_rows(_query(request, lambda t: f"SELECT {', '.join(parts)} FROM {t}"), request["out"])


def describe(request):
    """Column names and types in DuckDB's words."""
    with _connect() as connection:
        rows = connection.execute(f"DESCRIBE SELECT * FROM {_source(connection, request)}").fetchall()
    return {"fields": [{"name": r[0], "type": r[1].lower()} for r in rows]}


if __name__ == "__main__":
    worker.serve({"read": read, "count": count, "profile": profile, "describe": describe})
