"""Recording real processes on the simulated GPU: what a trace says is what the GPU's own log says, a
kill at any moment leaves a readable trace, and `lull trace record` stays out of its program's way."""

import json
import os
import pathlib
import random
import signal
import subprocess
import time
import unittest

import lab

WORKLOADS = pathlib.Path(__file__).resolve().parents[2] / "examples/workloads"
DUMP = lab.BUILD / "tests/trace_dump"
SCRIBE = lab.BUILD / "tests/trace_scribe"
# In front of a program whose every launch must be in the trace: what it launches before it attaches is not.
REQUIRED = ("env", "LULL_REQUIRE_COORDINATOR=1")
# All kills: of the writer itself at full speed, of a daemon that records, of the program recorded.
MOST_BYTES = 20_000  # of a trace whose daemon is killed: some 2,500 launches
SCRIBE_KILLS, DAEMON_KILLS, PROGRAM_KILLS = 60, 25, 15


def dump(path):
    out = subprocess.run([DUMP, path], check=True, capture_output=True, text=True).stdout
    events = [json.loads(line) for line in out.splitlines()]
    return events[:-1], events[-1]


class Trace:
    """What a dump says: launches and timings by (client, stream), kernels by index."""

    def __init__(self, path):
        self.events, self.end = dump(path)
        self.kernels = {e["index"]: e for e in self.events if e["kind"] == "kernel"}
        self.launches = [e for e in self.events if e["kind"] == "launch"]
        self.timings = {(e["client"], e["stream"], e["sequence"]): e for e in self.events if e["kind"] == "timing"}
        self.lost = sum(e["records"] for e in self.events if e["kind"] == "lost")

    def shape(self, launch):
        kernel = self.kernels[launch["kernel"]]
        return (kernel["name"], tuple(kernel["grid"]), tuple(kernel["block"]), kernel["shared_bytes"])

    def is_kernel(self, launch):
        return self.kernels[launch["kernel"]]["unit"] == 0

    def streams(self):
        """Of each stream, its kernels in order."""
        found = {}
        for launch in self.launches:
            if self.is_kernel(launch):
                found.setdefault((launch["client"], launch["stream"]), []).append(launch)
        return {key: sorted(some, key=lambda l: l["sequence"]) for key, some in found.items()}


def device_log(path):
    """simgpu's own log: of each stream, its kernels in order. A killed program's may end within a line."""
    streams = {}
    whole, _, _ = path.read_text().rpartition("\n")
    for line in whole.splitlines():
        entry = json.loads(line)
        if entry["kind"] == "kernel":
            streams.setdefault((entry["pid"], entry["context"], entry["stream"]), []).append(entry)
    return {key: sorted(some, key=lambda e: e["order"]) for key, some in streams.items()}


def logged_shape(entry):
    return (entry["name"], tuple(entry["grid"]), tuple(entry["block"]), entry["shared_bytes"])


class Recorded(unittest.TestCase):
    def record(self, here, *command, options=(), **more):
        path = here.folder / "run.lull"
        code, out, err = here.lull("trace", "record", "--sim", "-o", path, *options, "--", *command, **more)
        return path, code, out, err

    def pairs(self, here, workload, iterations, slow_motion="4"):
        """Each kernel launch of the trace with its entry in the device's own log."""
        log = here.folder / "device.log"
        path, code, out, err = self.record(
            here, *REQUIRED, lab.BIN / "lull-play", WORKLOADS / workload, "--iterations", iterations,
            options=("--timing", "full", "--slow-motion", slow_motion), timeout=500,
            SIMGPU_EVENT_LOG=log, SIMGPU_SLOW_MOTION=slow_motion)
        self.assertEqual(code, 0, err)
        trace, logged = Trace(path), device_log(log)
        self.assertEqual(trace.end["problem"], "")
        if trace.lost != 0:
            self.assertIn(f", {trace.lost} lost, ", err)
            return trace, {}
        recorded = trace.streams()
        # The two name streams differently: a stream is known by what was launched on it.
        unmatched = dict(logged)
        pairs = {}
        for key, launches in recorded.items():
            shapes = [trace.shape(launch) for launch in launches]
            twin = next((k for k, entries in unmatched.items() if [logged_shape(e) for e in entries] == shapes), None)
            self.assertIsNotNone(twin, f"stream {key}: {len(launches)} kernels in an order the device does not know")
            for launch, entry in zip(launches, unmatched.pop(twin)):
                pairs[(launch["client"], launch["stream"], launch["sequence"])] = entry
        self.assertFalse(unmatched, "streams that the trace does not know")
        ended = [e for e in trace.events if e["kind"] == "ended"]
        copies = [launch for launch in trace.launches if not trace.is_kernel(launch)]
        self.assertEqual(len(copies), sum(e["copies"] + e["memsets"] for e in ended), "copies and memsets")
        return trace, pairs

    def back_to_back(self, trace, pairs):
        """(timing, device's entry) of the kernels in a row of four without a pause, the second of it: events of this one and of the
        next were there in time however slow the host was, and say exactly what the device did. (Of a kernel that had ended before
        its end event was there, the shim cannot tell whether it began late or the host was held up afterwards.)"""
        exact = []
        for (client, stream), launches in trace.streams().items():
            of = {launch["sequence"]: pairs[client, stream, launch["sequence"]] for launch in launches}
            for at, entry in of.items():
                row = [of.get(n) for n in range(at - 1, at + 3)]
                timing = trace.timings.get((client, stream, at))
                if timing and all(row) and all(one["end_ns"] == next_one["start_ns"] for one, next_one in zip(row, row[1:])):
                    exact.append((timing, entry))
        return exact

    def test_a_trace_says_what_the_device_did(self):
        # Of several streams kernels wait for each other between a stream's event and their own start, on a GPU as on simgpu.
        for workload, iterations, chained in (("chatty_inference.json", "4", False), ("dense_inference.json", "3", True),
                                              ("training_step.json", "2", False)):
            with self.subTest(workload):
                # A machine too busy to drain the rings loses records and says so, times less, and its host comes behind the
                # device: then slower.
                for slow_motion in ("1", "4", "16", "64", "256"):
                    with lab.Lab() as here:
                        trace, pairs = self.pairs(here, workload, iterations, slow_motion)
                    exact = self.back_to_back(trace, pairs) if pairs else []
                    timed = [key for key in pairs if key in trace.timings]
                    if trace.lost == 0 and len(timed) > 0.9 * len(pairs) and (exact or not chained):
                        break
                self.assertEqual(trace.lost, 0)
                self.assertGreater(len(pairs), 100)
                self.assertGreater(len(timed), 0.9 * len(pairs), f"{len(timed)} of {len(pairs)} kernels timed")
                for key in timed:
                    self.assertGreater(trace.timings[key]["duration"], 0)
                if not chained:
                    continue
                self.assertGreater(len(exact), 0)
                for timing, entry in exact:
                    self.assertAlmostEqual(timing["duration"], entry["end_ns"] - entry["start_ns"], delta=2, msg=entry)
                    self.assertIn(timing["gap"], (-1, 0, 1, 2), entry)
                print(f"{workload}: {len(pairs)} kernels, {len(timed)} timed, {len(exact)} of them back to back")

    def test_the_ranges_that_a_program_marks_are_in_its_trace(self):
        with lab.Lab() as here:
            steps = 12
            # A machine too busy to drain the rings loses records and says so: then slower.
            for slow_motion in ("1", "4", "16", "64", "256"):
                path, code, _, err = self.record(here, *REQUIRED, lab.PROGRAMS / "marked_work", steps,
                                                 options=("--slow-motion", slow_motion, "--force"),
                                                 SIMGPU_SLOW_MOTION=slow_motion)
                self.assertEqual(code, 0, err)
                trace = Trace(path)
                if trace.lost == 0:
                    break
            self.assertEqual(trace.lost, 0)
            report = json.loads(here.lull("trace", "show", path, "--json")[1])
            ranges = {(row["domain"], row["name"]): row for row in report["ranges"]}
            for domain, name, kind, count in (("", "step", "nested", steps), ("", "forward", "nested", steps),
                                              ("", "backward", "nested", steps), ("", "two steps", "free", steps // 2),
                                              ("data", "load batch", "nested", steps)):
                self.assertEqual((ranges[domain, name]["kind"], ranges[domain, name]["count"]), (kind, count), name)
            self.assertGreater(ranges["", "step"]["total_us"], ranges["", "forward"]["total_us"])
            self.assertEqual(ranges["", f"stepped {steps - 1}"]["kind"], "mark")
            names = {e["index"]: e["name"] for e in trace.events if e["kind"] == "range_info"}
            ran = [e for e in trace.events if e["kind"] == "range"]
            parts = [e for e in ran if names[e["range"]] in ("forward", "backward")]
            outer = [e for e in ran if names[e["range"]] == "step"]
            waits = [e for e in trace.events if e["kind"] == "waited"]
            # Times are whole ns, each rounded by itself, and the daemon now and then compares its clocks anew.
            slack = 4000
            launches = sorted(trace.launches, key=lambda launch: launch["sequence"])
            each = 6  # three kernels between two copies and a memset
            self.assertEqual(len(launches), each * len(parts))
            for n, part in enumerate(parts):
                self.assertEqual(part["depth"], 1)
                inside = lambda begin, end: part["from"] - slack <= begin and end <= part["until"] + slack
                self.assertTrue(any(step["from"] - slack <= part["from"] and part["until"] <= step["until"] + slack for step in outer),
                                (part, outer))
                # Its launches are inside, kernels and copies, and the waits of its thread.
                for launch in launches[each * n:each * (n + 1)]:
                    self.assertTrue(inside(launch["at"], launch["at"]), (part, launch))
                self.assertTrue(any(inside(e["from"], e["until"]) for e in waits), (part, waits))
            # A tool of the program's own stays: here one that is not there.
            path.unlink()
            path, code, _, err = self.record(here, lab.PROGRAMS / "marked_work", steps, NVTX_INJECTION64_PATH="/no/tool.so")
            self.assertEqual(code, 0, err)
            self.assertEqual(json.loads(here.lull("trace", "show", path, "--json")[1])["ranges"], [])

    def test_exit_codes_output_and_signals_are_the_programs(self):
        with lab.Lab() as here:
            path, code, out, err = self.record(here, "sh", "-c", "echo hello; exit 7")
            self.assertEqual((code, out), (7, "hello\n"))
            self.assertEqual(err, f"lull: 0 launches recorded on the simulated GPU, 0 lost, {path.stat().st_size if path.exists() else 0} B in {path}\n")
            path.unlink(missing_ok=True)
            path, code, out, err = self.record(here, "sh", "-c", "kill -USR1 $$; sleep 30")
            self.assertEqual(code, -signal.SIGUSR1, err)
            path.unlink(missing_ok=True)
            path, code, out, err = self.record(here, here.folder / "absent")
            self.assertEqual(code, 127)
            self.assertFalse(path.exists())

    def test_an_existing_file_is_refused_and_replaced_on_demand(self):
        with lab.Lab() as here:
            path = here.folder / "run.lull"
            path.write_text("precious")
            _, code, _, err = self.record(here, "true")
            self.assertEqual(code, 125)
            self.assertEqual(err, f"lull: trace record: {path}: it is there already: name another with -o, "
                                  "or replace it with --force\n")
            self.assertEqual(path.read_text(), "precious")
            _, code, _, err = self.record(here, "true", options=("--force",))
            self.assertEqual(code, 0, err)

    def test_a_signal_to_the_recorder_reaches_the_program(self):
        with lab.Lab() as here:
            path = here.folder / "run.lull"
            recorder = here.start(lab.BIN / "lull", "trace", "record", "--sim", "-o", path, "--", *REQUIRED,
                                  lab.PROGRAMS / "loop_launch", 20_000, 20, 0, 100, shim=False)
            self.assertEqual(recorder.stdout.readline(), "ready\n")
            os.kill(recorder.pid, signal.SIGTERM)
            out, err = recorder.communicate(timeout=lab.DEADLINE_S)
            self.assertEqual(recorder.returncode, 0, err)
            launches = int(out.splitlines()[-1].split("launches=")[1].split()[0])
            trace = Trace(path)
            self.assertEqual(trace.end["problem"], "")
            self.assertEqual(len(trace.launches) + trace.lost, launches, err)
            ended = [e for e in trace.events if e["kind"] == "ended"]
            self.assertEqual([e["launches"] for e in ended], [launches])

    def test_a_program_outlives_the_daemon_that_records_it(self):
        with lab.Lab() as here:
            path = here.folder / "run.lull"
            recorder = here.start(lab.BIN / "lull", "trace", "record", "--sim", "-o", path, "--",
                                  lab.PROGRAMS / "loop_launch", 20_000, 20, 0, 100, shim=False)
            self.assertEqual(recorder.stdout.readline(), "ready\n")
            daemon = next(pid for pid in children_of(recorder.pid)
                          if os.readlink(f"/proc/{pid}/exe").endswith("/lulld"))
            lab.until(lambda: Trace(path).launches, "a block with launches is written")
            os.kill(daemon, signal.SIGKILL)
            self.assertEqual(recorder.stdout.readline().split("=")[0], "running launches")
            os.kill(recorder.pid, signal.SIGTERM)
            out, err = recorder.communicate(timeout=lab.DEADLINE_S)
            self.assertEqual(recorder.returncode, 0, err)
            self.assertIn("incomplete: its lulld ended before it", err)
            trace = Trace(path)
            self.assertGreater(len(trace.launches), 0)
            self.assertTrue(trace.end["problem"] == "" or trace.end["cut"])

    def test_the_running_daemon_records_until_it_is_asked_to_stop(self):
        with lab.Lab() as here:
            here.lulld()
            program = here.start(lab.PROGRAMS / "loop_launch", 20_000, 20, 0, 100)
            self.assertEqual(program.stdout.readline(), "ready\n")
            path = here.folder / "node.lull"
            recorder = here.start(lab.BIN / "lull", "trace", "record", "-o", path, shim=False)
            self.assertIn("Ctrl-C ends it", recorder.stderr.readline())
            lab.until(lambda: here.status()["trace"]["launches"] > 100, "launches are recorded")
            os.kill(recorder.pid, signal.SIGINT)
            out, err = recorder.communicate(timeout=lab.DEADLINE_S)
            self.assertEqual(recorder.returncode, 0, err)
            trace = Trace(path)
            self.assertEqual(trace.end["problem"], "")
            self.assertGreater(len(trace.launches), 100)
            self.assertIsNone(program.poll())


def children_of(pid):
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def grown(path, size, writer):
    """Waits until the file is that large, or its writer through."""
    lab.until(lambda: path.exists() and path.stat().st_size >= size or writer.poll() is not None, f"{path} has {size:.0f} bytes",
              step_s=0.0005)


class Killed(unittest.TestCase):
    def setUp(self):
        self.seed = random.SystemRandom().randrange(1 << 32)
        self.random = random.Random(self.seed)
        print("seed", self.seed)

    def test_a_writer_killed_at_any_moment_leaves_all_its_whole_blocks(self):
        with lab.Lab() as here:
            def begin(n):
                path = here.folder / f"{n}.lull"
                scribe = subprocess.Popen([SCRIBE, path, str(n), "8000"], stdout=subprocess.PIPE, text=True)
                scribe.stdout.readline()
                return path, scribe

            path, scribe = begin(SCRIBE_KILLS)
            self.assertEqual(lab.ended(scribe), 0)
            scribe.stdout.close()
            whole = path.stat().st_size
            cut = some = 0
            for n in range(SCRIBE_KILLS):
                path, scribe = begin(n)
                grown(path, self.random.random() * whole, scribe)
                lab.kill(scribe)
                scribe.stdout.close()
                check = subprocess.run([DUMP, path, str(n), "8000"], capture_output=True, text=True)
                self.assertEqual(check.returncode, 0, f"kill {n}: {check.stdout}{check.stderr}")
                end = json.loads(check.stdout)
                self.assertTrue(end["problem"] == "" or end["cut"], end)
                cut += end["cut"]
                some += 0 < end["events"] < 8000
            print(f"{SCRIBE_KILLS} kills, {some} in the middle of the recording, {cut} in the middle of a block")
            self.assertGreater(some, 0)

    def program(self, here, log):
        # What it launches before it attaches is in the device's log and in no trace.
        return here.start(lab.PROGRAMS / "loop_launch", 1_000, 50, 0, 500, SIMGPU_EVENT_LOG=log, LULL_REQUIRE_COORDINATOR=1)

    def check_prefix(self, path, log, n):
        """What the trace says of the program's one stream is how its order in the device's log begins."""
        trace = Trace(path)
        if not trace.end["opened"]:  # killed before the head
            self.assertIn("record again", trace.end["problem"])
            return 0, 0
        self.assertTrue(trace.end["problem"] == "" or trace.end["cut"], trace.end)
        streams = list(trace.streams().values())
        if not streams:
            return 0, trace.lost
        self.assertEqual(len(streams), 1, f"kill {n}")
        sequences = [launch["sequence"] for launch in streams[0]]
        self.assertEqual(sequences, sorted(set(sequences)), f"kill {n}")
        entries = list(device_log(log).values())
        order = [logged_shape(e) for e in max(entries, key=len)] if entries else []
        for launch in streams[0]:
            if launch["sequence"] <= len(order):
                self.assertEqual(trace.shape(launch), order[launch["sequence"] - 1], f"kill {n}")
        # Holes are only where records were lost, and that was said before what came after them.
        self.assertLessEqual(sequences[-1] - len(sequences), trace.lost, f"kill {n}")
        return len(sequences), trace.lost

    def test_a_daemon_killed_at_any_moment_leaves_a_right_beginning(self):
        recorded = []
        for n in range(DAEMON_KILLS):
            with lab.Lab() as here:
                path, log = here.folder / "run.lull", here.folder / "device.log"
                here.lulld("--policy", "share", "--trace", path)
                program = self.program(here, log)
                program.stdout.readline()
                grown(path, self.random.choice((0, 0.2, 1)) * self.random.randrange(1, MOST_BYTES), here.daemon)
                time.sleep(self.random.random() * 0.1)  # anywhere between two blocks
                lab.kill(here.daemon)
                program.terminate()
                out, err = program.communicate(timeout=lab.DEADLINE_S)
                self.assertEqual(program.returncode, 0, err)
                launches = int(out.splitlines()[-1].split("launches=")[1].split()[0])
                count, _ = self.check_prefix(path, log, n)
                self.assertLessEqual(count, launches)
                recorded.append(count)
        print(f"{DAEMON_KILLS} kills of lulld: {sum(c > 0 for c in recorded)} traces with launches, up to {max(recorded)}")
        self.assertGreater(max(recorded), 0)

    def test_a_program_killed_at_any_moment_leaves_a_right_trace(self):
        recorded = []
        for n in range(PROGRAM_KILLS):
            with lab.Lab() as here:
                path, log = here.folder / "run.lull", here.folder / "device.log"
                here.lulld("--policy", "share", "--trace", path)
                program = self.program(here, log)
                program.stdout.readline()
                time.sleep(self.random.random() * 0.1)
                lab.kill(program)
                lab.until(lambda: not here.status()["clients"], "lulld knows that it has gone")
                here.daemon.terminate()
                here.daemon.wait(lab.DEADLINE_S)
                count, lost = self.check_prefix(path, log, n)
                trace = Trace(path)
                self.assertEqual(trace.end["problem"], "")
                ended = [e for e in trace.events if e["kind"] == "ended"]
                self.assertEqual(len(ended), 1)
                # A launch is recorded before it is counted: the kill may fall between the two. What
                # was lost may have been timings.
                self.assertLessEqual(count, ended[0]["launches"] + 1, f"kill {n}")
                self.assertGreaterEqual(count + lost, ended[0]["launches"], f"kill {n}")
                recorded.append(count)
        print(f"{PROGRAM_KILLS} kills of the program: {min(recorded)} to {max(recorded)} launches recorded")
        self.assertGreater(min(recorded), 0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
