#!/usr/bin/env python3
"""A job policy decides who lives on which GPU, of real programs: steady_work, whose memory is checked at its end."""

import os
import pathlib
import signal
import sys
import time
import unittest

import lab
import moving

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/elastic"
QUICK = {"checkpoint_out_ns": 20000000, "checkpoint_back_ns": 20000000}
BUSY, LIGHT = (8, 3000, 0), (8, 100, 30000)  # MiB, us a kernel, us of pause behind six of them


# Four fifths of the time busy, so that two cannot go by turns in each other's pauses. A change of hands takes twice as long as a slice: two
# that are busy at the same time have a third of the GPU together, whatever the machine does meanwhile. Those that are light seldom are.
MOSTLY = (8, 20000, 30000)
COSTLY = {"slice_ns": 1000000, "switch_ns": 2000000}


# A turn lasts a hundred times what its move took: on a busy machine some minutes.
PATIENCE_S = lab.DEADLINE_S * 5


class Node(moving.Moves):
    def __init__(self, devices, profile=None):
        super().__init__(profile={**QUICK, **(profile or {})}, devices=devices)
        self.programs = {}

    def start_job(self, name, work, priority="5", way="--migratable"):
        options = ("--priority", priority)
        self.programs[name] = self.work(*work, job=name, way=way, program="steady_work", options=options)

    def look(self):
        """name -> (state, GPU, iterations) of one moment."""
        status = self.status()
        clients = {client["id"]: client for client in status["clients"]}
        jobs = {}
        for job in status["jobs"]:
            client = clients.get(job["clients"][0])
            if client and client["devices"]:
                jobs[job["job"]] = (job["state"], client["devices"][0]["uuid"], client["iteration"]["completed"])
        return jobs

    def decisions(self):
        policy = self.status()["job_policy"]
        return [one["text"] for one in policy["decisions"]] if policy else []

    def reach(self, what, text):
        """Until it is so. No rule is ever broken meanwhile."""
        last = {}

        def so():
            last["jobs"] = self.look()
            policy = self.status()["job_policy"]
            assert not (policy and policy["broken_rule"]), policy
            return what(last["jobs"])

        try:
            return lab.until(so, text, PATIENCE_S, step_s=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}: {last}, {self.decisions()}") from None

    def runs(self, *names):
        self.reach(lambda jobs: all(jobs.get(name, ("",))[0] == "running" for name in names), f"{names} run")

    def end(self, name):
        program = self.programs.pop(name)
        program.child.send_signal(signal.SIGTERM)
        code, _, err = program.result()
        assert code == 0, err

    def end_all(self):
        """A job that has no GPU ends once it has one: those that run come first."""
        while self.programs:
            self.reach(lambda jobs: any(jobs.get(name, ("",))[0] == "running" for name in self.programs), "one of them runs")
            jobs = self.look()
            for name in [name for name in self.programs if jobs.get(name, ("",))[0] == "running"][:1]:
                self.end(name)
        self.empty()


class Introspection(unittest.TestCase):
    def test_six_jobs_on_four_gpus(self):
        """The light ones share, the busy ones have a GPU each to themselves or beside light ones, and nobody waits."""
        with Node(devices=4) as node:
            node.lulld(config={"job_policy": "gandiva quantum_s=2"})
            for n in range(3):
                node.start_job(f"busy{n}", BUSY)
                node.start_job(f"light{n}", LIGHT)

            def settled(jobs):
                running = {name: gpu for name, (state, gpu, _) in jobs.items() if state == "running"}
                busy = [gpu for name, gpu in running.items() if name.startswith("busy")]
                return len(running) == 6 and len(set(busy)) == 3

            node.reach(settled, "all six run, no two busy ones on a GPU")
            # And stay so for a while: other arrangements are tried now and then.
            begin, since = node.look(), time.monotonic()

            def lasts(jobs):
                nonlocal since
                if not settled(jobs):
                    since = time.monotonic()
                return time.monotonic() - since > 1.5

            node.reach(lasts, "it stays so")
            node.reach(lambda jobs: all(jobs[name][2] > begin[name][2] for name in begin), "all go on")
            node.end_all()

    def test_five_busy_jobs_take_turns_on_four_gpus(self):
        """Two of them on one GPU are no faster than apart: a pack that is tried is undone, and all have their turns."""
        with Node(devices=4) as node:
            node.lulld(config={"job_policy": "gandiva quantum_s=2"})
            for n in range(5):
                node.start_job(f"busy{n}", BUSY)
            begin = node.reach(lambda jobs: len(jobs) == 5 and jobs, "all five are known")
            node.reach(lambda jobs: len(jobs) == 5 and all(jobs[name][2] > begin[name][2] + 20 for name in begin), "all have turns")

            def apart(jobs):
                gpus = [gpu for state, gpu, _ in jobs.values() if state == "running"]
                return len(gpus) == 4 and len(set(gpus)) == 4

            node.reach(apart, "four run, a GPU each")
            node.end_all()


class Packs(unittest.TestCase):
    def test_a_bad_pack_is_undone_and_a_good_one_kept(self):
        with Node(devices=1, profile=COSTLY) as node:
            node.lulld(config={"job_policy": "gandiva quantum_s=2"})

            def made(what, after_ns=0):
                decisions = node.status()["job_policy"]["decisions"]
                return [one for one in decisions if what in one["text"] and one["at_ns"] > after_ns]

            def said(what, after_ns=0):
                return [one["text"] for one in made(what, after_ns)]

            undone = "of what they make apart"
            # Where the machine was busy while each was measured alone, together they seem good: then two others are measured.
            for attempt in range(4):
                for name in (f"first{attempt}", f"other{attempt}"):
                    node.start_job(name, MOSTLY)
                tried_at = None

                def tried_for_a_while(_):
                    nonlocal tried_at
                    if tried_at is None and [one for one in made("tried together") if f"first{attempt}" in one["text"]]:
                        tried_at = time.monotonic()
                    return said(undone) or tried_at is not None and time.monotonic() - tried_at > 30

                node.reach(tried_for_a_while, "the two are tried together")
                if said(undone):
                    break
                node.end_all()
            self.assertTrue(said(undone), node.decisions())
            self.assertTrue(said("tried together"), node.decisions())
            end = made(undone)[-1]
            self.assertLess(float(end["text"].split(" it made ")[1].split()[0]), 1.05)  # the margin

            def both_run(jobs):
                return len(jobs) == 2 and all(state == "running" for state, _, _ in jobs.values())

            node.reach(lambda jobs: not both_run(jobs), "one of them leaves")
            begin = node.look()

            def in_turns(jobs):
                """Who was slower together is not tried again for 15 turns, of two seconds at least."""
                for again in made("tried together", end["at_ns"]):
                    self.assertGreaterEqual(again["at_ns"] - end["at_ns"], 15 * 2_000_000_000, node.decisions())
                    return True
                self.assertFalse(both_run(jobs), node.decisions())
                return all(jobs[name][2] > begin[name][2] + 3 for name in begin)

            node.reach(in_turns, "they have turns, and do not run together")
            node.end_all()
            # Where the machine was busy while they are together, they seem bad: then two others are tried.
            for attempt in range(4):
                known = node.status()["job_policy"]["decisions"][-1]["at_ns"]
                for name in (f"light{attempt}", f"slight{attempt}"):
                    node.start_job(name, LIGHT)
                node.reach(lambda jobs: both_run(jobs) and said("tried together", known), "the light ones are tried together")
                begin, since = node.look(), time.monotonic()
                # Longer than the trial, and than a turn.
                node.reach(lambda jobs: said(undone, known) or time.monotonic() - since > 6 and
                           all(jobs[name][2] > begin[name][2] + 50 for name in begin), "they go on")
                if not said(undone, known):
                    break
                node.end_all()
            self.assertTrue(both_run(node.look()), node.decisions())
            self.assertEqual(said(undone, known), [])
            node.end_all()


class Searches(unittest.TestCase):
    def test_jobs_of_one_family_share_and_a_preferred_one_has_its_own(self):
        with Node(devices=2) as node:
            node.lulld(config={"job_policy": "gandiva quantum_s=2"})
            names = [f"sweep/{n}" for n in range(5)]
            for name in names:
                node.start_job(name, LIGHT, priority="7")
            node.runs(*names)
            code, _, err = node.lull("priority", names[4], "5", "--socket", node.socket)
            self.assertEqual(code, 0, err)

            def apart(jobs):
                mine = jobs[names[4]]
                return mine[0] == "running" and all(jobs[name][1] != mine[1] for name in names[:4] if jobs[name][0] == "running")

            node.reach(apart, "the preferred one has a GPU of its own")
            node.runs(*names)
            node.end_all()


class Elastic(unittest.TestCase):
    def test_an_elastic_job_has_the_gpus_that_nobody_wants(self):
        with Node(devices=3) as node:
            node.lulld(config={"job_policy": "gandiva quantum_s=2 grow_after_s=1"})
            launcher = node.start(lab.BIN / "lull", "run", "--socket", node.socket, "--sim", "--elastic", "1:3", "--job", "train", "--",
                                  sys.executable, EXAMPLES / "restart_agent.py", "--rounds", 1000, "--", lab.PROGRAMS / "steady_work", *BUSY,
                                  shim=False, SIMGPU_DEVICE=node.device, LULL_DISCOVER=f"{lab.BIN / 'lull'} discover train --count")

            def workers(gpus):
                """Their pids, when it may have so many GPUs and has them."""
                status = node.status()
                job = next((job for job in status["jobs"] if job["job"] == "train"), None)
                if job is None or job["elastic"]["gpus"] != gpus:
                    return None
                at = {one["pid"]: one["devices"][0]["uuid"] for one in status["clients"] if one["job"] == "train" and one["devices"]}
                return list(at) if len(set(at.values())) == gpus else None

            try:
                node.reach(lambda _: workers(3), "it has taken all GPUs")
                node.start_job("other", BUSY)

                def apart(jobs):
                    train = {one["devices"][0]["uuid"] for one in node.status()["clients"] if one["job"] == "train" and one["devices"]}
                    return workers(2) and jobs.get("other", ("",))[0] == "running" and jobs["other"][1] not in train

                node.reach(apart, "it gives one back, and the other job runs there")
                node.end("other")
                node.reach(lambda _: workers(3), "it takes it again")
                code, _, err = node.lull("resize", "train", "--gpus", 2, "--socket", node.socket)
                self.assertEqual(code, 0, err)
                node.reach(lambda _: workers(2), "a person's number is the most")
            finally:
                launcher.kill()
                launcher.wait()
                for one in node.status()["clients"]:
                    os.kill(one["pid"], signal.SIGTERM)
            node.empty()


class Rules(unittest.TestCase):
    def test_importance_does_not_yield(self):
        with Node(devices=1) as node:
            node.lulld(config={"job_policy": "las"})
            node.start_job("low", BUSY, priority="7")
            node.runs("low")
            lab.until(lambda: node.job("low")["decision"], "it has its place from the policy")
            node.start_job("high", BUSY, priority="2")
            node.reach(lambda jobs: jobs.get("high", ("",))[0] == "running" and jobs["low"][0] == "suspended", "the low one makes room")
            self.assertIn("important", node.job("low")["decision"])
            with self.assertRaises(moving.Refused) as refused:
                node.order("resume", "low")
            self.assertIn("job policy", str(refused.exception))
            node.end("high")
            node.runs("low")
            node.end_all()

    def test_without_a_policy_all_go_on(self):
        with Node(devices=1) as node:
            node.lulld(config={"job_policy": "fifo"})
            node.start_job("first", BUSY)
            # It runs before it can be moved, and has arrived once it can.
            lab.until(lambda: any("resume job first" in said for said in node.decisions()), "it has its place from the policy")
            node.runs("first")
            node.start_job("second", BUSY)
            node.reach(lambda jobs: jobs.get("second", ("",))[0] == "suspended", "the second one waits")
            self.assertIn("the policy has given it no GPU yet", node.job("second")["waits_for"])
            code, out, err = node.lull("status", "--socket", node.socket)
            self.assertIn("second: suspended, memory out, by a policy: the job policy: it has arrived", " ".join(out.split()), err)
            with self.assertRaises(moving.Refused) as refused:
                node.order("resume", "second")
            self.assertIn("no GPU yet", str(refused.exception))
            code, out, err = node.run(lab.BIN / "lull", "policy", "--jobs", "none", "--socket", node.socket, shim=False)
            self.assertEqual((code, out.strip()), (0, "none"), err)
            lab.until(lambda: all(job["state"] == "running" for job in node.status()["jobs"]), "both run")
            self.assertIsNone(node.status()["job_policy"])
            code, _, err = node.run(lab.BIN / "lull", "policy", "--jobs", "nonsense", "--socket", node.socket, shim=False)
            self.assertEqual(code, 1)
            self.assertIn("gandiva", err)
            node.end_all()

    def test_what_a_person_says_and_what_cannot_be_moved(self):
        with Node(devices=2) as node:
            node.lulld(config={"job_policy": "time_slice quantum_s=1"})
            node.start_job("fixed", BUSY, way=None)
            node.runs("fixed")  # before the other comes: time_slice does not part two jobs that share a GPU already
            node.start_job("one", BUSY)
            node.runs("one")
            node.reach(lambda jobs: jobs["fixed"][1] != jobs["one"][1], "the one that can be moved goes to the other GPU")
            node.order("suspend", "one", level="out", at="now")
            node.reach(lambda jobs: jobs["one"][0] == "suspended", "a person suspends one")
            node.start_job("two", BUSY)
            node.runs("two")
            for _ in range(30):
                self.assertEqual(node.look()["one"][0], "suspended")
                time.sleep(0.1)
            node.order("resume", "one")
            node.runs("one")
            self.assertEqual(node.look()["fixed"][0], "running")
            node.end_all()

    def test_a_new_lulld_places_them_again(self):
        with Node(devices=2) as node:
            node.lulld(config={"job_policy": "fifo"})
            for name in ("one", "two", "three"):
                node.start_job(name, BUSY)
            node.reach(lambda jobs: sorted(state for state, _, _ in jobs.values()) == ["running", "running", "suspended"], "two run")
            node.daemon.kill()
            node.daemon.wait(lab.DEADLINE_S)
            node.lulld(config={"job_policy": "fifo"})
            node.reach(lambda jobs: sorted(state for state, _, _ in jobs.values()) == ["running", "running", "suspended"] and
                       len({gpu for state, gpu, _ in jobs.values() if state == "running"}) == 2, "two run again, a GPU each")
            node.end_all()


if __name__ == "__main__":
    unittest.main(verbosity=2)
