"""The small frame that every Python peer of the interop suite shares. It needs nothing but Python.

A peer is a long-lived process. It reads one request a line on stdin, a JSON object whose "op" names a
handler, and answers with one JSON object a line on stdout: the handler's result, or {"error": text}.
Rows never travel through that pipe: they go to the file named by "out", one JSON object a line in the
suite's normal form (interop/doc.go).
"""

import datetime
import decimal
import json
import os
import sys
import traceback


def serve(handlers):
    """Answer requests until stdin ends. What libraries print goes to stderr, which the suite logs."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = handlers[request["op"]](request) or {}
        except BaseException:  # a peer's panic is an answer too: the suite reports it and goes on
            answer = {"error": traceback.format_exc()}
        replies.write(json.dumps(answer, ensure_ascii=False) + "\n")
        replies.flush()


def write_dicts(rows, path):
    """Write rows that are dicts of values already in the normal form."""
    with open(path, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def literal(kind, text):
    """A Python value of the column kind (a word of Paimon's SQL) from its normal form."""
    if kind == "BOOLEAN":
        return text == "true"
    if kind in ("TINYINT", "SMALLINT", "INT", "BIGINT", "TIME"):
        return int(text)
    if kind == "DECIMAL":
        return decimal.Decimal(text)
    if kind in ("BINARY", "VARBINARY", "BYTES"):
        return bytes.fromhex(text)
    if kind == "DATE":
        return datetime.date.fromisoformat(text)
    if kind.startswith("TIMESTAMP"):
        moment = datetime.datetime.fromisoformat(text[:26])
        return moment.replace(tzinfo=datetime.timezone.utc) if kind == "TIMESTAMP_LTZ" else moment
    return text


def sql_literal(request):
    """The "value" of a request as a literal that DuckDB and Spark both read."""
    kind, text = request["kind"], request["value"]
    if kind == "BOOLEAN":
        return text
    if kind in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
        return f"CAST('{text}' AS BIGINT)"
    if kind == "DECIMAL":
        return f"CAST('{text}' AS DECIMAL({request['precision']},{request['scale']}))"
    if kind == "DATE":
        return f"DATE '{text}'"
    return "'" + text.replace("'", "''") + "'"
