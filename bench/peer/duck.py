"""DuckDB's side of the comparison: `dedup THREADS FOLDER OUT` reads the level-0 files in FOLDER and writes the newest row
of each key, in key order, to OUT. The answer is wall seconds, processor seconds, rows. The first time with a number of
threads several queries are tried; from then on the fastest of them does it."""

import sys
import time

import duckdb

QUERIES = [
    "select * from {src} qualify row_number() over (partition by {key} order by _SEQUENCE_NUMBER desc) = 1 order by {key}",
    "select * exclude (next_) from (select *, lead({key}) over (order by {key}, _SEQUENCE_NUMBER) next_ from {src}) "
    "where next_ is null or next_ <> {key}",
    "select a.* from {src} a semi join (select {key}, max(_SEQUENCE_NUMBER) _SEQUENCE_NUMBER from {src} group by {key}) b "
    "using ({key}, _SEQUENCE_NUMBER) order by {key}",
]
best = {}


def timed(con, query, out):
    wall, cpu = time.perf_counter(), time.process_time()
    con.execute(f"copy ({query}) to '{out}' (format parquet, compression zstd, compression_level 1)")
    return time.perf_counter() - wall, time.process_time() - cpu


def dedup(threads, folder, out):
    con = duckdb.connect()
    con.execute(f"set threads = {threads}")
    con.execute("set enable_progress_bar = false")
    src = f"read_parquet('{folder}/*.parquet')"
    key = next(c for c in [r[0] for r in con.execute(f"describe select * from {src}").fetchall()] if not c.startswith("_"))
    queries = [q.format(src=src, key=key) for q in QUERIES]
    if threads not in best:
        took = [timed(con, q, out) for q in queries]
        best[threads] = min(range(len(queries)), key=lambda i: took[i][0])
    wall, cpu = timed(con, queries[best[threads]], out)
    rows = con.execute(f"select count(*) from read_parquet('{out}')").fetchone()[0]
    return f"{wall} {cpu} {rows}"


for line in sys.stdin:
    words = line.split()
    try:
        print(dedup(int(words[1]), words[2], words[3]), flush=True)
    except Exception as e:  # the other side shows it and ends
        print("error", " ".join(str(e).split()), flush=True)
