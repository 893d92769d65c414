"""The changes of a table of calve, read over HTTP as an Arrow stream with pyarrow alone.

    pip install pyarrow
    python changes.py http://localhost:8181 shop.orders POSITION_FILE

It prints each change as a line of JSON. POSITION_FILE keeps where the next run goes on, so that each change is printed
once; the first run begins with the oldest change there is. With --follow it waits for what comes. Set CALVE_TOKEN to the
token of the server if it asks for one.
"""

import json
import os
import sys
import urllib.request

import pyarrow as pa


def batches(server, table, start="earliest", follow=False, token=None):
    """Yield record batches: the table's columns behind _snapshot, _kind (+I, -U, +U or -D) and _at.

    _at is the position behind a row: start="at:" + _at goes on behind it. A batch without rows says that the stream
    is alive. When the table gets a new schema the next batch has it.
    """
    database, _, name = table.partition(".")
    url = f"{server}/v1/tables/{database}/{name}/changes?from={start}&follow={str(follow).lower()}"
    headers = {"Accept": "application/vnd.apache.arrow.stream"}
    if token:
        headers["Authorization"] = "Bearer " + token
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:
        while response.peek(1):  # where the schema changes one Arrow stream ends and another one begins
            stream = pa.ipc.open_stream(response)
            gap = (stream.schema.metadata or {}).get(b"calve.event") == b"gap"
            if gap:  # only with on_gap=rescan: what follows are the rows of the whole table
                raise RuntimeError(stream.schema.metadata[b"calve.event.detail"].decode())
            yield from stream


def main(server, table, position_file, *flags):
    """Print the changes that come after the position in the file."""
    start = "earliest"
    if os.path.exists(position_file):
        with open(position_file, encoding="utf-8") as f:
            start = "at:" + f.read()
    for batch in batches(server, table, start, "--follow" in flags, os.environ.get("CALVE_TOKEN")):
        for row in batch.to_pylist():
            position = row.pop("_at")
            print(json.dumps(row, default=str), flush=True)
        if batch.num_rows:  # the rows were dealt with
            with open(position_file + ".new", "w", encoding="utf-8") as f:
                f.write(position)
            os.replace(position_file + ".new", position_file)


if __name__ == "__main__":
    main(*sys.argv[1:])
