"""Random jobs under random orders, while clients and lulld are killed and stopped.

    move_chaos.py [--seconds 60] [--seed S] [--jobs 4] [--tight | --job-policy "gandiva quantum_s=2"]

Memory suffices for all jobs, or with --tight for any one of them: then all take turns.
What must hold: each job that nobody suspended goes on within a deadline; each that was not killed ends with the bytes
of an undisturbed run; no device ever holds more than it has, nor memory of a process that lulld has out; at the end
everything is zero. The seed is printed; the same seed gives the same orders, not the same moments.

With --job-policy the policy decides, and people only now and then. Then three things must hold, twice each:

                                    at each of the policy's steps                    of what is seen, after each act here
  no job on a full GPU              lulld's decision check (policies/jobs/           no device holds more than it has
                                    decision_check.h) before anything is done
  no job is lost                    the check: none waits where GPUs are free        each is known to lulld; none waits beside a free
                                                                                     GPU; each ends with the right bytes
  importance never yields           the check                                        none waits for one who is less important

What is seen may lag: a move takes its time, and a job whose move was refused stands for a minute. A rule that the check sees
broken is in lulld's status until it ends, and in its log, which is read whole at the end of each lulld.
"""

import argparse
import dataclasses
import json
import os
import random
import re
import signal
import sys
import time

import lab
import moving
from moving import MIB

DEVICES = 2
ROOMY_BYTES, TIGHT_BYTES = 1280 * MIB, 320 * MIB  # for all jobs at once; for any one of them
QUICK = {"checkpoint_out_ns": 20000000, "checkpoint_back_ns": 20000000}
CONFIG = {"host_memory": "400M", "quantum_s": 2}
IMPORTANT_S = 30.0  # how long a job may wait while a less important one runs that could make room: a move takes its time
FREE_S = 120.0  # how long one may wait beside a GPU that nobody uses: a refused job stands for a minute
KNOWN_S = 30.0  # how long a program that uses a GPU may be unknown to lulld
PROGRESS_S = 60.0  # how long a job may stand still that nobody holds, on a busy machine
WAYS = ("--suspendable", "--migratable", "--oversubscribe", None)
TURNS = ("--oversubscribe",)  # where memory is tight: others would be out of memory, and rightly so
# Iterations, seed, MiB, threads.
WORKS = ((20, 1, 8, 1), (40, 2, 24, 2), (60, 3, 64, 1), (30, 4, 64, 2), (100, 5, 24, 1))


@dataclasses.dataclass
class Job:
    name: str
    work: tuple
    way: str
    ranks: list
    killed: bool = False
    suspended: bool = False
    steps: int = 0
    moved_at: float = dataclasses.field(default_factory=time.monotonic)

    def running(self):
        return any(rank.running() for rank in self.ranks)


class Chaos:
    def __init__(self, here, dice, jobs, tight, policy):
        self.here, self.dice, self.most = here, dice, jobs
        self.ways, self.device_bytes = (TURNS, TIGHT_BYTES) if tight else (WAYS, ROOMY_BYTES)
        self.jobs, self.number = [], 0
        self.digests = {work: here.undisturbed(*work) for work in WORKS}
        self.counts, self.stopped_until, self.daemon_up = {}, None, False
        self.ended = self.wrong = 0
        self.policy, self.config = policy, {**CONFIG, **({"job_policy": policy} if policy else {})}
        self.yields_since, self.free_since, self.unknown_since = None, {}, {}
        self.log, self.looks = None, 0

    def start_lulld(self):
        self.here.lulld(config=self.config)
        self.log = moving.Program(self.here.daemon)
        self.daemon_up = True

    def end_lulld(self):
        """What it logged is read to its end."""
        self.daemon_up = False
        lab.kill(self.here.daemon)
        self.log.result()
        self.look_at_log()

    def look_at_log(self):
        said = self.log.errors + self.log.lines
        for line in said:
            if decision := re.search(r"job policy: (place|suspend|resume|pack|unpack|migrate|grow|shrink) job ", line):
                self.count(f"decided: {decision[1]}")
        broken = [line for line in said if "has broken a rule" in line]
        if broken:
            raise AssertionError(f"lulld's log: {broken}")

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    # ---- jobs
    def start_job(self):
        self.number += 1
        ranks = 2 if self.dice.random() < 0.25 else 1
        way = self.dice.choice(self.ways)
        work = self.dice.choice([work for work in WORKS if work[3] == 1 or ranks == 1])
        name = f"job{self.number}"
        options = ("--priority", self.dice.choice(("high", "normal", "low")))
        # lulld may be killed or stopped while they start.
        programs = [self.here.work(*work, job=name, way=way, options=options, required=False) for _ in range(ranks)]
        self.jobs.append(Job(name, work, way, programs))
        self.count(f"job {way or 'plain'}{' of two ranks' if ranks > 1 else ''}")

    def end_job(self, job):
        self.jobs.remove(job)
        self.ended += 1
        for rank in job.ranks:
            code, digest, err = rank.result()
            if job.killed:
                continue
            if (code, digest) != (0, self.digests[job.work]):
                self.wrong += 1
                raise AssertionError(f"{job.name} {job.way} {job.work} pid {rank.pid}: exit {code}, digest {digest} "
                                     f"for {self.digests[job.work]}: {err}")

    # ---- what happens to them
    def order(self, op, job, **more):
        if self.stopped_until is not None or not self.daemon_up:
            return
        try:
            reply = self.here.ask({"op": op, "job": job.name, **more})
        except (OSError, ValueError):
            return  # lulld ended this moment
        self.count(op if reply.get("ok") else f"{op} refused")
        if reply.get("ok") and op in ("suspend", "resume", "migrate"):
            job.suspended = op == "suspend"
            job.moved_at = time.monotonic()

    def act(self):
        job = self.dice.choice(self.jobs)
        dice = self.dice.random()
        if self.policy and dice < 0.85 and self.dice.random() < 0.9:
            return  # a person's order now and then
        if self.policy and dice >= 0.88 and self.dice.random() < 0.75:
            return  # a lulld lives for some turns
        if dice < 0.34:
            self.order("suspend", job, level=self.dice.choice(("auto", "in_place", "out", "given_up")),
                       at=self.dice.choice(("now", "iteration")))
        elif dice < 0.70:
            self.order("resume", job)
        elif dice < 0.82:
            able = [one for one in self.jobs if one.way == "--migratable"]
            self.order("migrate", self.dice.choice(able or [job]), to=[self.dice.randrange(DEVICES)])
        elif dice < 0.85:
            self.order("pin", job, pinned=self.dice.random() < 0.1)
        elif dice < 0.88:
            rank = self.dice.choice(job.ranks)
            if rank.running():
                job.killed = True
                self.count("client killed")
                os.kill(rank.pid, signal.SIGKILL)
                for other in job.ranks:  # the ranks of a job live together
                    if other is not rank and other.running():
                        os.kill(other.pid, signal.SIGKILL)
        elif dice < 0.92 and self.stopped_until is None:
            self.count("lulld killed and restarted")
            self.end_lulld()
            time.sleep(self.dice.choice((0, 0, 0.3, 1.5)))
            self.start_lulld()
            self.nobody_is_suspended()
        elif dice < 0.96 and self.stopped_until is None:
            self.count("lulld stopped")
            os.kill(self.here.daemon.pid, signal.SIGSTOP)
            self.stopped_until = time.monotonic() + self.dice.choice((0.1, 0.5, 1.5, 3.0))

    def nobody_is_suspended(self):
        """A killed lulld forgets; its clients bring their memory back."""
        for job in self.jobs:
            job.suspended, job.moved_at = False, time.monotonic()

    def wake_daemon(self):
        if self.stopped_until is not None and time.monotonic() > self.stopped_until:
            os.kill(self.here.daemon.pid, signal.SIGCONT)
            self.stopped_until = None
            lab.until(self.here.alive, "lulld answers after SIGCONT")
            for job in self.jobs:
                job.moved_at = time.monotonic()

    # ---- what must hold
    def look(self):
        usage = self.here.usage()
        for device, holders in enumerate(usage):
            if sum(holders.values()) > self.device_bytes:
                raise AssertionError(f"device {device} holds {sum(holders.values())} of {self.device_bytes}: {holders}")
        for job in list(self.jobs):
            if not job.running():
                self.end_job(job)
                continue
            steps = sum(rank.steps for rank in job.ranks)
            # What an in-place or a waiting job holds up is its own doing; others must go on.
            if steps != job.steps or job.suspended or self.waits(job):
                job.steps, job.moved_at = steps, time.monotonic()
            elif time.monotonic() - job.moved_at > PROGRESS_S:
                raise AssertionError(f"{job.name} {job.way} {job.work} stands still: {self.why(job)}")

    def waits(self, job):
        """Said to wait for memory: allowed while somebody else is on the device."""
        if job.way is None or self.stopped_until is not None:
            return False
        try:
            state = self.here.job(job.name)
        except (OSError, ValueError):
            return False
        if state is not None and self.policy and state["by_policy"]:
            return True
        return state is not None and state["state"] == "waiting" and len(self.jobs) > 1

    def look_at_policy(self):
        """Of one answer of lulld's: jobs that the policy has stopped, and who runs meanwhile."""
        if not self.policy or self.stopped_until is not None or not self.daemon_up:
            return
        try:
            status = self.here.status()
        except (OSError, ValueError):
            return
        broken = (status.get("job_policy") or {}).get("broken_rule")
        if broken:
            raise AssertionError(f"the policy has broken a rule: {broken}; {status['job_policy']['decisions']}")
        self.looks += 1
        jobs = status.get("jobs", [])
        self.look_for_lost(status, jobs)
        waits = [job for job in jobs if job["by_policy"] and job["state"] == "suspended"]
        runs = [job for job in jobs if job["state"] == "running" and job["decision"] and not job["pinned"]]
        yields = [(one["job"], other["job"]) for one in waits for other in runs
                  if one["priority"] < other["priority"] and one["client_count"] == other["client_count"]]
        if not yields:
            self.yields_since = None
        elif self.yields_since is None:
            self.yields_since = time.monotonic()
        elif time.monotonic() - self.yields_since > IMPORTANT_S:
            raise AssertionError(f"{yields}: the first waits, the second runs and is less important: {json.dumps(status)}")

    def look_for_lost(self, status, jobs):
        """Every program is known to lulld, and no job of one program waits for the policy beside a GPU that nobody uses."""
        now = time.monotonic()
        known = {client["pid"]: client for client in status["clients"]}
        unknown = {rank.pid for job in self.jobs for rank in job.ranks if rank.running() and rank.steps > 0 and rank.pid not in known}
        self.unknown_since = {pid: self.unknown_since.get(pid, now) for pid in unknown}
        for pid, since in self.unknown_since.items():
            if now - since > KNOWN_S:
                raise AssertionError(f"lulld does not know {pid}: {json.dumps(status)}")
        places = {client["id"]: {usage["uuid"] for usage in client["devices"]} for client in status["clients"]}
        at = {job["job"]: set().union(*(places.get(client, set()) for client in job["clients"])) for job in jobs}
        in_use = set().union(*(at[job["job"]] for job in jobs if job["state"] != "suspended"))
        in_use |= {usage["uuid"] for client in status["clients"] if not client["residence"] for usage in client["devices"]}
        free = {device["uuid"] for device in status["devices"]} - in_use
        ways = {job.name: job.way for job in self.jobs}
        beside = {(job["job"], gpu) for job in jobs for gpu in free if job["by_policy"] and job["state"] == "suspended"
                  and not job["pinned"] and job["client_count"] == 1 and (ways.get(job["job"]) == "--migratable" or gpu in at[job["job"]])}
        self.free_since = {pair: self.free_since.get(pair, now) for pair in beside}
        for (name, gpu), since in self.free_since.items():
            if now - since > FREE_S:
                raise AssertionError(f"{name} waits, and nobody uses {gpu}: {json.dumps(status)}")

    def why(self, job):
        said = []
        for rank in job.ranks:
            try:
                words = moving.Residence(rank.pid)
                said.append(json.dumps({**words.read(), "ordered": words.order(), "threads": moving.threads_of(rank.pid)}))
            except (LookupError, OSError) as error:
                said.append(str(error))
        try:
            said.append(json.dumps(self.here.status().get("jobs")))
        except (OSError, ValueError) as error:
            said.append(f"lulld: {error}")
        return f"{said}; devices {self.here.usage()}"

    def run(self, seconds):
        self.start_lulld()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            while len(self.jobs) < self.most and self.stopped_until is None:
                self.start_job()
            if self.jobs:
                self.act()
            time.sleep(self.dice.choice((0, 0.02, 0.1)))
            self.wake_daemon()
            self.look()
            self.look_at_policy()
        self.finish()

    def finish(self):
        """Nobody disturbs any more: all of them end."""
        if self.stopped_until is not None:
            self.stopped_until = 0
            self.wake_daemon()
        deadline = time.monotonic() + PROGRESS_S * 5
        while self.jobs:
            for job in self.jobs:
                known = self.here.job(job.name)
                if job.running() and known:
                    if known["state"] in ("suspended", "waiting", "stopping", "leaving"):
                        self.order("resume", job)
                    self.order("pin", job, pinned=False)
                job.suspended = False
            time.sleep(0.2)
            self.look()
            if time.monotonic() > deadline:
                raise AssertionError(f"not all ended: {[(j.name, self.why(j)) for j in self.jobs]}")
        self.here.empty()
        lab.until(lambda: not self.here.status()["clients"], "lulld has no clients")
        jobs = self.here.status().get("jobs", [])
        if jobs:
            raise AssertionError(f"lulld still has jobs: {jobs}")
        self.end_lulld()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--tight", action="store_true")
    parser.add_argument("--job-policy", metavar="TEXT")
    wanted = parser.parse_args()
    print(f"move_chaos: seed {wanted.seed}, {wanted.seconds:.0f} s, {wanted.jobs} jobs at a time, memory {'tight' if wanted.tight else 'roomy'}"
          f"{', ' + wanted.job_policy if wanted.job_policy else ''}", flush=True)
    size = TIGHT_BYTES if wanted.tight else ROOMY_BYTES
    with moving.Moves(profile={**QUICK, "memory_bytes": size}, devices=DEVICES) as here:
        chaos = Chaos(here, random.Random(wanted.seed), wanted.jobs, wanted.tight, wanted.job_policy)
        try:
            chaos.run(wanted.seconds)
        finally:
            print(f"seed {wanted.seed}: {chaos.ended} jobs ended; the policy looked at {chaos.looks} times; " +
                  ", ".join(f"{what}: {n}" for what, n in sorted(chaos.counts.items())), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
