"""What the tests of the trace commands share: where things are, how a command is run."""

import csv
import io
import json
import os
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("LULL_BUILD_DIR", HERE.parents[1] / "build/dev"))
LULL = BUILD / "bin/lull"
TRACES = pathlib.Path(os.environ.get("LULL_SHARED_TRACES") or os.environ.get("LULL_TRACES_BESIDE")
                      or HERE.parents[2] / "shared/traces")


def lull(*words, code=0, columns=None, **more):
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    if columns:
        environment["COLUMNS"] = str(columns)
    done = subprocess.run([str(LULL), *map(str, words)], capture_output=True, text=True, env=environment, **more)
    assert done.returncode == code, f"lull {words}: exit {done.returncode}, wanted {code}\n{done.stderr}"
    return done


def show(path, *more, code=0):
    return json.loads(lull("trace", "show", path, "--json", *more, code=code).stdout)


def make_trace(path, launches, timed_one_in=1):
    subprocess.run([BUILD / "tests/lull_make_trace", path, str(launches), str(timed_one_in)], check=True)
    return path


def scratch():
    return tempfile.TemporaryDirectory(prefix="lull-trace-show-")


def quantile(values, share):
    """The sample with rank ceil(share * count), as the tables define it."""
    values = sorted(values)
    return values[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)]


def csv_rows(path):
    """The timed launches of a trace: {client, name, start, end}, ns since its beginning."""
    text = lull("trace", "export", path, "--format", "csv", "-o", "-").stdout
    return [{"client": int(row["client"]), "name": row["kernel"], "start": int(row["start_ns"]),
             "end": int(row["start_ns"]) + int(row["duration_ns"])}
            for row in csv.DictReader(io.StringIO(text)) if row["start_ns"]]
