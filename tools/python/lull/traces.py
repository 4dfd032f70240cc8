"""Traces of `lull trace record` as tables: one row a launch, times in ns since the trace's beginning."""

import csv
import importlib.util
import io
import json

from lull.programs import LullError, complaint, start

_NUMBERS = ("client", "thread", "stream", "sequence", "shared_bytes", "bytes", "launched_ns", "held_ns", "held_by", "start_ns",
            "duration_ns", "gap_ns")


def read_trace(path, into=None):
    """Every launch of the trace.

    into: "pandas" (a DataFrame), "pyarrow" (a Table), "rows" (a list of dicts), or None: the first of them
    that is installed. Columns: client, task, device, thread, stream, sequence, kind (kernel, graph, copy,
    memset), kernel, mangled, grid, block, shared_bytes, call_site, bytes, launched_ns, held_ns, held_by,
    start_ns, duration_ns, gap_ns, cancelled. start_ns, duration_ns and gap_ns are missing of launches that
    were not timed. Raises LullError where the trace cannot be read whole.
    """
    if into is None:
        into = next((name for name in ("pandas", "pyarrow") if importlib.util.find_spec(name)), "rows")
    readers = {"pandas": _pandas, "pyarrow": _pyarrow, "rows": _rows}
    if into not in readers:
        raise ValueError(f"into is {into!r}: pandas, pyarrow or rows is expected")
    with start("trace", "export", path, "--format", "csv", "--output", "-") as process:
        out, complained = process.communicate()
    if process.returncode != 0:
        raise LullError(complaint(complained))
    return readers[into](io.BytesIO(out))


def trace_report(path):
    """What `lull trace show --json` says: kernels, tasks, streams, devices, held, iterations."""
    with start("trace", "show", path, "--json") as process:
        out, complained = process.communicate()
    if process.returncode != 0:
        raise LullError(complaint(complained))
    return json.loads(out)


def _pandas(stream):
    import pandas
    types = {name: "Int64" for name in _NUMBERS} | {"cancelled": "bool"}
    texts = {name: "string" for name in ("task", "device", "kind", "kernel", "mangled", "grid", "block", "call_site")}
    return pandas.read_csv(stream, dtype=types | texts, true_values=["1"], false_values=["0"])


def _pyarrow(stream):
    import pyarrow
    from pyarrow import csv as arrow_csv
    types = {name: pyarrow.int64() for name in _NUMBERS} | {"cancelled": pyarrow.bool_()}
    types |= {name: pyarrow.string() for name in ("task", "device", "kind", "kernel", "mangled", "grid", "block", "call_site")}
    return arrow_csv.read_csv(stream, convert_options=arrow_csv.ConvertOptions(column_types=types))


def _rows(stream):
    rows = []
    for row in csv.DictReader(io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")):
        for name in _NUMBERS:
            row[name] = int(row[name]) if row[name] else None
        row["cancelled"] = row["cancelled"] == "1"
        rows.append(row)
    return rows
