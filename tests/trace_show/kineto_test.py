"""Imported PyTorch recordings against what the standard library makes of the same JSON, and
against the figures listed beside the five real ones (skipped where those are not at hand)."""

import collections
import gzip
import json
import pathlib
import pty
import select
import subprocess
import unittest

import lab

# file: operations, span ms, busy %, p50 us, p90 us (the list counts copies and memsets as kernels)
LISTED = {
    "h100-bert-small-inference": (61, 3.9, 8, 3.6, 8.2),
    "h100-vit-image-detection-inference": (156, 7.6, 16, 8.2, 13.6),
    "h100-qwen1.5-0.5b-inference": (1707, 49.7, 92, 26.5, 50.5),
    "h100-timesformer": (534, 160.0, 99, 57, 164),
    "a100-training-4-streams": (9450, 464.6, 84, 8, 42),
}
DEVICE_WORK = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset"}


def device_work(path):
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    return [e for e in events if e.get("cat") in DEVICE_WORK and e.get("ph") == "X"]


def union_and_span(intervals):
    intervals = sorted(intervals)
    busy, until, first = 0.0, None, intervals[0][0]
    for start, end in intervals:
        if until is None or start > until:
            busy += end - start
            until = end
        elif end > until:
            busy += end - until
            until = end
    return busy, until - first


def recording(events, **more):
    return {"schemaVersion": 1, "traceEvents": events, **more}


def kernel(name, ts, dur, stream, correlation, cat="kernel"):
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur,
            "args": {"device": 0, "stream": stream, "correlation": correlation, "grid": [2, 1, 1],
                     "block": [64, 1, 1], "shared memory": 0, "bytes": 128}}


def call(name, ts, dur, correlation, thread=5):
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": thread, "ts": ts,
            "dur": dur, "args": {"correlation": correlation}}


class Kineto(unittest.TestCase):
    def setUp(self):
        self.folder = lab.scratch()
        self.at = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def imported(self, source):
        target = self.at / "imported.lull"
        target.unlink(missing_ok=True)
        lab.lull("trace", "import", source, "-o", target)
        return target

    def test_progress_is_on_a_terminal_only_and_gone_at_the_end(self):
        source = self.at / "t.json"
        events = [event for n in range(2000) for event in (call("cudaLaunchKernel", 10 * n, 2, n), kernel("k", 10 * n + 4, 3, 7, n))]
        source.write_text(json.dumps(recording(events)))
        self.assertGreater(source.stat().st_size, 1 << 19)  # more than one piece
        words = [lab.LULL, "trace", "import", source, "-o", self.at / "i.lull"]
        self.assertEqual(subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).stderr, b"")
        try:
            ours, theirs = pty.openpty()
        except OSError as error:  # a container without /dev/pts
            self.skipTest(f"no pseudo-terminal on this machine: {error}")
        with open(ours, "rb", buffering=0) as terminal:
            with open(theirs, "wb") as stderr:
                subprocess.run([*words[:-1], self.at / "again.lull"], check=True, stdout=subprocess.DEVNULL, stderr=stderr)
                # The kernel hands it over piece by piece.
                shown = b""
                while not shown.endswith(b"\r\x1b[K") and select.select([terminal], [], [], 10)[0]:
                    shown += terminal.read(1 << 16)
        shown = shown.decode()
        self.assertRegex(shown, r"lull: trace import: t\.json: \d+ % read")
        self.assertTrue(shown.endswith("\r\x1b[K"), shown)

    def check_against_json(self, source):
        work = device_work(source)
        got = lab.show(self.imported(source), "--top", "0")
        self.assertEqual(got["launches"], len(work))
        self.assertEqual(got["timed"], len(work))
        lengths = collections.defaultdict(list)
        for event in work:
            shape = tuple(event["args"].get("grid", [1, 1, 1])) + tuple(event["args"].get("block", [1, 1, 1]))
            lengths[event["name"], DEVICE_WORK[event["cat"]], shape,
                    event["args"].get("shared memory", 0)].append(round(event["dur"] * 1000))
        rows = {(row["mangled"], row["kind"], tuple(row["grid"] + row["block"]), row["shared_bytes"]): row
                for row in got["kernels"]}
        self.assertEqual(set(rows), set(lengths))
        for key, values in lengths.items():
            row = rows[key]
            self.assertEqual(row["count"], len(values), key)
            self.assertEqual(round(row["total_us"] * 1000), sum(values), key)
            self.assertFalse(row["estimated"])
            for share, field in ((0.5, "p50_us"), (0.9, "p90_us"), (0.99, "p99_us")):
                exact = lab.quantile(values, share) / 1000
                self.assertLessEqual(abs(row[field] - exact), 0.009 * exact + 0.002, (key, field))
        per_stream = collections.Counter()
        for event in work:
            per_stream[event["args"]["stream"]] += round(event["dur"] * 1000)
        self.assertEqual({row["stream"]: round(row["total_us"] * 1000) for row in got["streams"]},
                         dict(per_stream))
        base = min(e["ts"] for e in work)
        busy, span = union_and_span([(e["ts"] - base, e["ts"] - base + e["dur"]) for e in work])
        device = got["devices"][0]
        self.assertAlmostEqual(device["busy_us"], busy, delta=max(1.0, busy * 1e-4))
        self.assertAlmostEqual(device["span_us"], span, delta=1.0)
        self.assertFalse(device["busy_is_partial"])
        return got, work

    def test_the_five_recordings_have_the_figures_of_their_list(self):
        if not lab.TRACES.is_dir():
            self.skipTest(f"no traces in {lab.TRACES}")
        for name, (operations, span_ms, busy, p50, p90) in LISTED.items():
            with self.subTest(name):
                got, work = self.check_against_json(lab.TRACES / f"{name}.json.gz")
                device = got["devices"][0]
                self.assertEqual(device["count"], operations)
                self.assertAlmostEqual(device["span_us"] / 1e3, span_ms, delta=0.05)
                self.assertEqual(round(device["busy_share"] * 100), busy)
                every = sorted(e["dur"] for e in work)
                # The list counts ranks from 0.
                self.assertAlmostEqual(every[int(.5 * len(every))], p50, delta=0.02 * p50)
                self.assertAlmostEqual(every[int(.9 * len(every))], p90, delta=0.02 * p90)

    def test_a_small_recording_is_imported_whole(self):
        source = self.at / "small.json.gz"
        events = [
            call("cudaLaunchKernel", 100, 5, 1), kernel("_Z1av", 110, 10.5, 7, 1),
            call("cudaLaunchKernel", 106, 5, 2), kernel("_Z1bv", 121, 4, 7, 2),
            call("cudaMemcpyAsync", 112, 5, 3, thread=6), kernel("Memcpy", 115, 30, 20, 3, "gpu_memcpy"),
            kernel("_Z1av", 90, 2, 7, 99),  # its call was before the recording
            call("cudaStreamSynchronize", 118, 40, 4),
        ]
        with gzip.open(source, "wt") as file:
            json.dump(recording(events, deviceProperties=[
                {"id": 0, "name": "Made-up GPU", "totalGlobalMem": 1 << 34}], baseTimeNanoseconds=10**18), file)
        got, _ = self.check_against_json(source)
        self.assertEqual(got["devices"][0]["name"], "Made-up GPU")
        self.assertEqual(got["devices"][0]["total_bytes"], 1 << 34)
        self.assertEqual(got["tasks"][0]["launches"], 3)
        self.assertEqual(got["tasks"][0]["copies"], 1)
        self.assertEqual(got["tasks"][0]["task"], "small")
        self.assertFalse(got["simulated"])
        self.assertEqual(got["info"]["created_unix_ns"], 10**18 + 90_000)
        # a (ends at 120.5) to b (starts at 121); the one without a call has no gap
        row = next(r for r in got["kernels"] if r["name"] == "a()")
        self.assertEqual((row["count"], row["gap_count"], row["gap_p50_us"]), (2, 1, 0.5))
        self.assertEqual(sum(s["syncs"] for s in got["streams"] if s["stream"] == 7), 1)

    def test_a_recording_exported_as_a_workload_keeps_its_work_and_its_host(self):
        if not lab.TRACES.is_dir():
            self.skipTest(f"no traces in {lab.TRACES}")
        for name in ("h100-bert-small-inference", "h100-vit-image-detection-inference"):
            with self.subTest(name):
                source = lab.TRACES / f"{name}.json.gz"
                target = self.at / "w.json"
                lab.lull("trace", "export", self.imported(source), "--format", "workload", "--from", "0",
                         "--to", "100s", "-o", target)
                ops = json.loads(target.read_text())["ops"]
                work = device_work(source)
                kernels = [e for e in work if e["cat"] == "kernel"]
                self.assertEqual(sum("launch" in op for op in ops), len(kernels))
                self.assertEqual(sum(op.get("duration_ns", 0) for op in ops),
                                 sum(round(e["dur"] * 1000) for e in kernels))
                self.assertEqual(sum("copy" in op or "memset" in op for op in ops), len(work) - len(kernels))
                # Both are bound by their host: the calls of the recording take as long again.
                with gzip.open(source) as file:
                    calls = {e["args"]["correlation"]: e["ts"] for e in json.load(file)["traceEvents"]
                             if e.get("cat", "").startswith("cuda_") and "correlation" in e.get("args", {})}
                made = [calls[e["args"]["correlation"]] for e in work if e["args"]["correlation"] in calls]
                host_us = sum(op.get("pause_ns", 0) + op.get("call_ns", 0) for op in ops) / 1e3
                host_us -= ops[0].get("pause_ns", 0) / 1e3
                self.assertAlmostEqual(host_us, max(made) - min(made), delta=0.1 * host_us)

    def test_a_recording_without_gzip_and_without_device_properties(self):
        source = self.at / "plain.json"
        source.write_text(json.dumps([call("cudaLaunchKernel", 1, 1, 1), kernel("x", 2, 3, 7, 1)]))
        got = lab.show(self.imported(source))
        self.assertEqual(got["launches"], 1)

    def test_what_is_no_recording_is_said_in_one_line(self):
        bad = {
            "empty": b"",
            "cut": json.dumps(recording([kernel("x", 2, 3, 7, 1)])).encode()[:-9],
            "cut.gz": gzip.compress(b'{"traceEvents": [' + b" " * 100000)[:60],
            "host-only": json.dumps(recording([call("cudaLaunchKernel", 1, 1, 1)])).encode(),
            "times": json.dumps(recording([kernel("x", 2, -3, 7, 1)])).encode(),
            "devices": b'{"deviceProperties": [["a", 1]], "baseTimeNanoseconds": -9223372036854775808}',
        }
        for name, content in bad.items():
            with self.subTest(name):
                source = self.at / name
                source.write_bytes(content)
                target = self.at / "none.lull"
                done = lab.lull("trace", "import", source, "-o", target, code=1)
                self.assertRegex(done.stderr, r"^lull: trace import: [^\n]*: [^\n]*\n$")
                self.assertFalse(target.exists())
        done = lab.lull("trace", "import", self.at / "absent", "-o", self.at / "x", code=1)
        self.assertIn("absent", done.stderr)


if __name__ == "__main__":
    unittest.main()
