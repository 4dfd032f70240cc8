"""`lull trace show|timeline|diff|export` as a user starts them, on made-up files, whole and broken."""

import csv
import io
import json
import pathlib
import random
import subprocess
import unittest

import lab

FORMATS = ("perfetto", "html", "workload")


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = lab.scratch()
        cls.at = pathlib.Path(cls.folder.name)
        cls.trace = lab.make_trace(cls.at / "whole.lull", 28_800)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_show_json_adds_up(self):
        got = lab.show(self.trace)
        self.assertTrue(got["simulated"])
        self.assertIsNone(got["problem"])
        self.assertEqual(got["launches"], 28_800)
        self.assertEqual(got["timed"], 28_800)
        for table in ("kernels", "streams", "devices", "tasks"):
            self.assertEqual(sum(row["count"] for row in got[table]), 28_800, table)
        totals = {table: round(sum(row["total_us"] for row in got[table]), 1)
                  for table in ("kernels", "streams", "devices", "tasks")}
        self.assertEqual(len(set(totals.values())), 1, totals)
        self.assertEqual([row["total_us"] for row in got["kernels"]],
                         sorted((row["total_us"] for row in got["kernels"]), reverse=True))
        for row in got["kernels"]:
            self.assertLessEqual(row["p50_us"], row["p90_us"])
            self.assertLessEqual(row["p90_us"], row["p99_us"])
            self.assertLessEqual(row["gap_p50_us"], row["gap_p90_us"])
        held = got["held"]
        self.assertEqual([(row["task"], row["by"]) for row in held], [("train (2)", "serve (1)")])
        self.assertEqual(held[0]["total_us"], next(t for t in got["tasks"] if t["task"] == "train")["held_us"])
        self.assertEqual({row["launches_each"] for row in got["iterations"]}, {24})

    def test_show_prints_tables(self):
        text = lab.lull("trace", "show", self.trace, "--top", "3", "--by", "count", "--width", "100").stdout
        self.assertIn("simulated GPU", text.splitlines()[0])
        self.assertIn("KERNELS by count, 3 of 6", text)
        for heading in ("TASKS", "STREAMS", "HELD", "ITERATIONS"):
            self.assertIn(f"\n{heading}\n", text)
        self.assertIn("vectorAdd", lab.lull("trace", "show", self.trace).stdout)

    def test_csv_is_json(self):
        got = lab.show(self.trace)
        for table in ("kernels", "tasks", "streams", "devices", "held", "iterations"):
            text = lab.lull("trace", "show", self.trace, "--csv", "--table", table).stdout
            rows = list(csv.DictReader(io.StringIO(text)))
            self.assertEqual(len(rows), len(got[table]))
            for row, wanted in zip(rows, got[table]):
                self.assertEqual(list(row), list(wanted))
                for key, value in wanted.items():
                    if isinstance(value, str):
                        self.assertEqual(row[key], value)
                    elif isinstance(value, (int, float)) and not isinstance(value, bool):
                        self.assertEqual(float(row[key]), value)

    def test_sampled_timing_is_estimated(self):
        exact = {row["id"]: row for row in lab.show(self.trace)["kernels"]}
        got = lab.show(lab.make_trace(self.at / "sampled.lull", 28_800, 5))
        self.assertEqual(got["timed"], 5760)
        for row in got["kernels"]:
            self.assertTrue(row["estimated"])
            self.assertLess(row["measured_us"], row["total_us"])
            self.assertAlmostEqual(row["total_us"], exact[row["id"]]["total_us"],
                                   delta=0.05 * row["total_us"])
        self.assertIn("~", lab.lull("trace", "show", self.at / "sampled.lull").stdout)
        self.assertTrue(got["devices"][0]["busy_is_partial"])

    def test_timeline_draws_lanes_and_gates(self):
        out = lab.lull("trace", "timeline", self.trace, "--ascii", "--width", "80").stdout.splitlines()
        lanes = [line for line in out if line.endswith("%")]
        self.assertEqual(sum(not line.startswith("ranges") for line in lanes), 3)
        self.assertEqual(sum(line.startswith("ranges t0 ") for line in lanes), 4)  # two tasks, two levels
        self.assertTrue(any(line.startswith("held train (2)") for line in lanes))
        self.assertTrue(all(len(line) <= 80 for line in out[1:]), out)
        part = lab.lull("trace", "timeline", self.trace, "--from", "10ms", "--to", "10.2ms", "--ascii").stdout
        self.assertIn("|10.1 ms", part)
        marks = [line for line in out if line.startswith("iterations ")]
        self.assertEqual([line.split()[1] for line in marks], [row["task"].split()[0] for row in lab.show(self.trace)["iterations"]])
        starts = [us for us in lab.show(self.trace)["iterations"][0]["starts_us"] if 10_000 <= us < 10_200]
        drawn = next(line for line in part.splitlines() if line.startswith("iterations "))
        self.assertEqual(drawn.count("|"), len(starts))

    def test_diff_of_two_runs(self):
        other = lab.make_trace(self.at / "other.lull", 57_600)
        got = json.loads(lab.lull("trace", "diff", self.trace, other, "--json").stdout)
        self.assertEqual(len(got["kernels"]), 6)
        changes = [abs(row["change_us"]) for row in got["kernels"]]
        self.assertEqual(changes, sorted(changes, reverse=True))
        for row in got["kernels"]:
            self.assertEqual(row["b"]["count"], 2 * row["a"]["count"])
            self.assertAlmostEqual(row["change_us"], row["b"]["total_us"] - row["a"]["total_us"], delta=.01)
        self.assertRegex(got["verdict"], r"^Simulated: B takes [\d.]+ m?s more device time than A \(\+\d+\.\d %\); "
                                         r"most changes \w+.*, \+[\d.]+ m?s\.$")
        text = lab.lull("trace", "diff", self.trace, other).stdout
        self.assertEqual(" ".join(text.split("\n\n")[-1].split()), got["verdict"])
        back = json.loads(lab.lull("trace", "diff", other, self.trace, "--json").stdout)["verdict"]
        self.assertRegex(back, r"^Simulated: B takes [\d.]+ m?s less device time than A \(-\d+\.\d %\); most changes ")
        text = lab.lull("trace", "diff", self.trace, self.trace).stdout
        self.assertIn("+0.0 %", text)
        self.assertTrue(text.endswith("\n\nSimulated: B takes as much device time as A.\n"), text)

    def test_workload_of_an_iteration_is_what_the_player_reads(self):
        target = self.at / "w.json"
        lab.lull("trace", "export", self.trace, "--format", "workload", "--task", "serve", "-o", target,
                 "--model", "m", "--batch", "8", "--kind", "inference")
        made = json.loads(target.read_text())
        launches = [op for op in made["ops"] if "launch" in op]
        self.assertEqual(len(launches), 24)
        self.assertEqual(made["recorded"]["gpu"], "Made-up GPU")
        self.assertEqual(made["recorded"]["model"], "m")
        self.assertIn("simulated", made["description"])
        done = subprocess.run([lab.BUILD / "bin/lull-play", "--describe", target], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("24 launches of 6 kernels", done.stdout)
        iteration = next(r for r in lab.show(self.trace)["iterations"] if r["task"].startswith("serve"))
        self.assertGreater(iteration["confidence"], .9)

    def test_workload_of_everything_is_folded(self):
        target = self.at / "all.json"
        lab.lull("trace", "export", self.trace, "--format", "workload", "--task", "train", "--from", "0",
                 "--to", "100s", "--max-ops", "500", "-o", target)
        made = json.loads(target.read_text())
        written_out = sum(op.get("repeat", 1) * len(op.get("ops", [op])) for op in made["ops"])
        self.assertGreater(written_out, 19_000)
        self.assertLess(len(made["ops"]), 500)

    def test_a_cut_trace_is_shown_as_far_as_it_goes(self):
        whole = self.trace.read_bytes()
        broken = self.at / "cut.lull"
        broken.write_bytes(whole[:len(whole) * 2 // 3])
        got = lab.show(broken, code=1)
        self.assertIn("cut.lull", got["problem"])
        self.assertRegex(got["problem"], r"byte \d+")
        self.assertGreater(got["launches"], 1000)
        self.assertLess(got["launches"], 28_800)
        done = lab.lull("trace", "show", broken, code=1)
        self.assertIn("KERNELS", done.stdout)
        self.assertRegex(done.stderr, r"^lull: trace show: [^\n]*cut.lull[^\n]*byte \d+[^\n]*\n$")
        self.assertIn("%", lab.lull("trace", "timeline", broken, code=1).stdout)
        lab.lull("trace", "diff", self.trace, broken, code=1)
        for form in FORMATS:
            target = self.at / f"cut.{form}"
            done = lab.lull("trace", "export", broken, "--format", form, "-o", target, code=1)
            self.assertIn("byte", done.stderr)
            self.assertGreater(target.stat().st_size, 500)

    def test_a_corrupt_trace_is_shown_as_far_as_it_goes(self):
        content = bytearray(self.trace.read_bytes())
        content[len(content) * 3 // 4] ^= 0x40
        broken = self.at / "corrupt.lull"
        broken.write_bytes(content)
        got = lab.show(broken, code=1)
        self.assertRegex(got["problem"], r"corrupt.lull.*byte \d+")
        self.assertGreater(got["launches"], 1000)

    def test_no_damage_makes_a_command_crash(self):
        random.seed(4)
        whole = self.trace.read_bytes()
        broken = self.at / "damaged.lull"
        for turn in range(60):
            content = bytearray(whole)
            for _ in range(random.choice((1, 3, 50))):
                content[random.randrange(len(content))] = random.randrange(256)
            broken.write_bytes(content[:random.randrange(1, len(content))] if turn % 3 == 0 else content)
            done = subprocess.run([lab.LULL, "trace", *random.choice((("show",), ("timeline",))), broken],
                                  capture_output=True, text=True)
            self.assertIn(done.returncode, (0, 1), (turn, done.stderr))
            if done.returncode == 1:
                self.assertRegex(done.stderr, r"^lull: trace \w+: [^\n]*damaged.lull[^\n]*\n$")

    def test_what_is_no_trace_is_an_error_of_one_line(self):
        newer = bytearray(self.trace.read_bytes())
        newer[8:12] = (0x7fffffff).to_bytes(4, "little")  # wherever the version is, this is not it
        cases = {"empty": b"", "text": b"hello world\n" * 100, "newer": bytes(newer)}
        for name, content in cases.items():
            path = self.at / f"{name}.lull"
            path.write_bytes(content)
            for words in (("show", path), ("timeline", path), ("diff", path, self.trace),
                          *(("export", path, "--format", form, "-o", self.at / "never") for form in FORMATS)):
                with self.subTest(name, words=words):
                    done = lab.lull("trace", *words, code=1)
                    self.assertRegex(done.stderr, r"^lull: trace \w+: [^\n]*" + name + r"\.lull[^\n]*\n$")
                    self.assertEqual(done.stdout, "")
                    self.assertFalse((self.at / "never").exists())
        lab.lull("trace", "show", self.at / "absent", code=1)

    def test_wrong_words_are_usage(self):
        for words in (("show",), ("show", self.trace, "--by", "colour"), ("show", self.trace, "--table", "x"),
                      ("show", self.trace, "--csv", "--table", "x"), ("timeline", self.trace, "--from", "soon"),
                      ("timeline", self.trace, "--from", "2ms", "--to", "1ms"), ("export", self.trace),
                      ("export", self.trace, "--format", "pdf"), ("import", self.trace), ("diff", self.trace),
                      ("export", self.trace, "--format", "html", "-o", self.trace),
                      ("export", self.trace, "--format", "perfetto", "-o", self.at / "." / ".." / self.at.name / "whole.lull"), ("nonsense",)):
            with self.subTest(words=words):
                done = lab.lull("trace", *words, code=2)
                self.assertRegex(done.stderr, r"^lull: trace[^\n]*\n$")

    def test_an_export_that_cannot_be_written_says_so(self):
        for form in FORMATS:
            done = lab.lull("trace", "export", self.trace, "--format", form, "-o", "/nonexistent/x", code=1)
            self.assertRegex(done.stderr, r"^lull: trace export: cannot write [^\n]*\n$")
        done = lab.lull("trace", "export", self.trace, "--format", "workload", "--task", "nobody", code=1)
        self.assertIn("nobody", done.stderr)


if __name__ == "__main__":
    unittest.main()
