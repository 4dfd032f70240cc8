"""Real processes do what the simulator plays, exactly: every launch of a workload once and in its order, and each
decision of the daemon is the one that the simulator's engine takes. Counts, order and decisions; no time (how far
figures agree is measured by tools/bench/agreement)."""

import json
import pathlib
import re
import signal
import subprocess
import sys
import unittest

import lab

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKLOADS = ROOT / "examples/workloads"
sys.path.insert(0, str(ROOT / "tests/simulation"))
import serial_model  # noqa: E402

ITERATIONS = 4
MOST_SHARED = 48 << 10  # the player asks for no more
OWN_UNITS = 1  # at most so many of the player's own come first on a stream: it clears its memory


def three(size):
    return tuple(size) + (1,) * (3 - len(size))


def streams_of(workload):
    """The units of one iteration by stream, as the independent model reads the file; a copy or memset is None."""
    data = serial_model.read_workload(workload)
    streams = {}
    for op in data["flat"]:
        units = streams.setdefault(op.get("stream", 0), [])
        if "launch" in op:
            kernel = data["kernels"][op["launch"]]
            units.append((kernel["name"], three(kernel["grid"]), three(kernel["block"]),
                          min(kernel.get("shared_bytes", 0), MOST_SHARED)))
        elif "copy" in op or "memset" in op:
            units.append(None)
    return streams


def kernels_of(workload):
    return sum(unit is not None for units in streams_of(workload).values() for unit in units)


def unescaped(name):
    return re.sub(r"\$([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), name)


def recorded_streams(path):
    """By task, of each stream the kernels at their places in it; how many records were lost."""
    text = subprocess.run([lab.BUILD / "tests/trace_dump", path], check=True, capture_output=True, text=True).stdout
    events = [json.loads(line) for line in text.splitlines()]
    task = {e["client"]: e["task"] for e in events if e["kind"] == "started"}
    kernels = {e["index"]: e for e in events if e["kind"] == "kernel"}
    found = {}
    for e in events:
        kernel = kernels[e["kernel"]] if e["kind"] == "launch" else None
        if kernel and kernel["unit"] == 0:
            shape = (unescaped(kernel["name"]), tuple(kernel["grid"]), tuple(kernel["block"]), kernel["shared_bytes"])
            found.setdefault(task[e["client"]], {}).setdefault(e["stream"], []).append((e["sequence"], shape))
    lost = sum(e["records"] for e in events if e["kind"] == "lost")
    return {name: {key: sorted(some) for key, some in streams.items()} for name, streams in found.items()}, lost


class Agreement(unittest.TestCase):
    def play(self, here, role, workload, *how):
        # What it launches before it attaches is in its report and in no trace.
        return here.start(lab.BIN / "lull-play", workload, "--report", here.folder / f"{role}.report", *how,
                          LULL_NAME=role, LULL_PRIORITY=role, LULL_REQUIRE_COORDINATOR=1)

    def launched(self, here, role):
        lines = (here.folder / f"{role}.report").read_text().splitlines()
        return next(event["launches"] for event in map(json.loads, lines) if event["event"] == "done")

    def check_order(self, here, recorded, lost, role, workload):
        """A stream of the trace has what a stream of the workload has, iteration behind iteration. A machine too busy to
        drain the rings loses records and says so; where each of the others belongs is known: units are numbered."""
        count = 0
        for number, launches in recorded[role].items():
            fits = any(all(shape == units[(at - before) % len(units)] for at, shape in launches)
                       for units in streams_of(workload).values() for before in range(1, 2 + OWN_UNITS))
            self.assertTrue(fits, f"{role}, stream {number}: {len(launches)} launches in an order of no stream of the file")
            count += len(launches)
        self.assertLessEqual(count, self.launched(here, role))
        self.assertGreaterEqual(count + lost, self.launched(here, role))

    def test_launches_and_decisions_are_those_of_the_simulator(self):
        pairs = (("chatty_inference", "dense_inference", "guarded"), ("chatty_inference", "chatty_inference", "fikit"),
                 ("dense_inference", "training_step", "priority"), ("dense_inference", "chatty_inference", "time_slice"),
                 ("chatty_inference", "batch_long_kernels", "share"))
        for high, low, policy in pairs:
            with self.subTest(high=high, low=low, policy=policy), lab.Lab(slow_motion=2) as here:
                files = {role: WORKLOADS / f"{name}.json" for role, name in (("high", high), ("low", low))}
                trace, log = here.folder / "run.lull", here.folder / "decisions"
                here.lulld("--policy", policy, "--trace", trace, "--decision-log", log)
                busy = self.play(here, "low", files["low"], "--until-signal")
                lab.until(lambda: (client := here.client(busy.pid)) and client["launches"], "the low task launches")
                asked = self.play(here, "high", files["high"], "--iterations", ITERATIONS)
                self.assertEqual(lab.ended(asked), 0)
                busy.send_signal(signal.SIGTERM)
                self.assertEqual(lab.ended(busy), 0)
                here.daemon.send_signal(signal.SIGTERM)
                self.assertEqual(lab.ended(here.daemon), 0)

                self.assertEqual(self.launched(here, "high"), ITERATIONS * kernels_of(files["high"]))
                recorded, lost = recorded_streams(trace)
                self.assertEqual(set(recorded), {"high", "low"})
                for role, workload in files.items():
                    self.check_order(here, recorded, lost, role, workload)
                code, said, err = here.lull("simulate", "--replay", log)
                self.assertEqual(code, 0, err)
                self.assertIn("every step gave what the log says", said)
                print(f"{high} beside {low}: {said.splitlines()[0]}; {lost} records lost")


if __name__ == "__main__":
    unittest.main(verbosity=1)
