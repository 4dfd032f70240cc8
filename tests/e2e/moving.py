"""What tests of suspension and migration have in common: jobs whose every byte is checked (programs/moving_work),
orders to lulld, and three witnesses of where memory is: lulld's status, the client's own words in the memory it
shares with lulld, and the simulated device."""

import fcntl
import json
import os
import pathlib
import random
import re
import select
import struct
import termios
import threading

import lab

MIB = 1 << 20

# coordinator/channel/layout.h: lull_client begins at 8 KiB; its lull_residence behind 16 devices of 128 bytes,
# 16 words of credit and four counts.
REGION_BYTES = (1312 + 64 * 16) * 1024
RESIDENCE_AT = 8192 + 16 * 128 + 16 * 8 + 4 * 4
RESIDENCE = struct.Struct("<4I5Q16Q16Q128s")
# lull_control at 4 KiB; its lull_order in the second cache line behind the words.
ORDER_AT = 4096 + 448
ORDER = struct.Struct("<6I2Q")
STATES = ("resident", "draining", "leaving", "out", "giving_up", "given_up", "restoring", "returning", "lost")
RESULTS = ("done", "busy", "no_host_memory", "refused", "no_device_memory", "replaced")


class Residence:
    """A client's own words, read out of its memory without asking anybody. Its parent may."""

    def __init__(self, pid):
        self.path, regions = f"/proc/{pid}/mem", {}
        with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps:
            for line in maps:
                begin, end = (int(x, 16) for x in line.split()[0].split("-"))
                if "memfd:" in line and end - begin == REGION_BYTES:
                    regions[int(line.split()[4])] = begin  # by inode
        if not regions:
            raise LookupError(f"{pid} has no region")
        self.region = regions[max(regions)]  # of its newest coordinator

    def _bytes(self, at, size):
        with open(self.path, "rb", 0) as memory:
            return os.pread(memory.fileno(), size, self.region + at)

    def read(self):
        words = RESIDENCE.unpack(self._bytes(RESIDENCE_AT, RESIDENCE.size))
        return {"state": STATES[words[0]], "order": words[1], "result": RESULTS[words[2]], "abilities": words[3],
                "moving_bytes": words[4], "moved_bytes": words[5], "move_ns": words[6], "host_bytes": words[7],
                "swappable_bytes": sum(words[9:25]), "fixed_bytes": sum(words[25:41]),
                "reason": words[41].split(b"\0")[0].decode(errors="replace")}

    def state(self):
        return STATES[struct.unpack("<I", self._bytes(RESIDENCE_AT, 4))[0]]

    def order(self):
        """What lulld wants of it."""
        names = ("number", "target", "drain_ms", "pair_count", "chunk_bytes", "reserved", "pace_bytes_per_s", "host_allowance_bytes")
        return dict(zip(names, ORDER.unpack(self._bytes(ORDER_AT, ORDER.size))))


def threads_of(pid):
    """Name, state, and where in the kernel each of its threads waits."""
    threads = []
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        threads.append(f"{(task / 'comm').read_text().strip()} {fields[0]} {(task / 'wchan').read_text()} "
                       f"{int(fields[11]) + int(fields[12])} ticks")
    return threads


class Lines:
    """The lines of a stream, taken as they come, by a thread of its own and by whoever must not miss what is written already."""

    def __init__(self, stream, take):
        self.stream, self.take, self.rest, self.lock = stream, take, b"", threading.Lock()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        poll = select.poll()
        poll.register(self.stream, select.POLLIN)
        while not self.stream.closed:
            poll.poll()
            with self.lock:
                if self.stream.closed or not poll.poll(0):
                    continue  # somebody has read it meanwhile
                data = os.read(self.stream.fileno(), 65536)
                if not data:
                    break
                self._took(data)
        if self.rest:
            self.take(self.rest.decode(errors="replace"))

    def _took(self, data):
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.take(line.decode(errors="replace"))

    def catch_up(self):
        with self.lock:
            waiting = struct.unpack("i", fcntl.ioctl(self.stream, termios.FIONREAD, b"\0" * 4))[0]
            if waiting != 0:
                self._took(os.read(self.stream.fileno(), waiting))


class Program:
    """A child whose lines are read as they come, so that it never waits for its reader."""

    def __init__(self, child, stays=None):
        """`stays`: the file without which it does not end."""
        self.child, self.pid, self.stays = child, child.pid, stays
        self._steps, self.lines, self.errors = 0, [], []
        self.out, self.err = Lines(child.stdout, self._line), Lines(child.stderr, self.errors.append)

    def _line(self, line):
        if line.startswith("step "):
            self._steps = int(line[5:])
        else:
            self.lines.append(line)

    @property
    def steps(self):
        """Those that it has said, also those that nobody has read yet."""
        self.out.catch_up()
        return self._steps

    def running(self):
        return self.child.poll() is None

    def ready(self):
        lab.until(lambda: "ready" in self.lines or not self.running(), "the program is ready")
        if not self.running():
            raise AssertionError(f"ended: {self.result()}")
        return self

    def goes_on(self, steps=3, deadline_s=lab.DEADLINE_S):
        begin = self.steps
        lab.until(lambda: self.steps >= begin + steps or not self.running(), f"{self.pid} goes on (from step {begin})", deadline_s)

    def result(self, deadline_s=lab.DEADLINE_S * 3):
        if self.stays:
            self.stays.touch()
        code = self.child.wait(deadline_s)
        for lines in (self.out, self.err):
            lines.thread.join(lab.DEADLINE_S)
        digest = next((m[1] for line in self.lines if (m := re.match(r"digest=([0-9a-f]+)", line))), None)
        return code, digest, "\n".join(self.errors)


class Refused(AssertionError):
    pass


class Moves(lab.Lab):
    """A lab with jobs that move. `profile`: what differs from the built-in device."""

    digests = {}  # of all labs of this process

    def __init__(self, profile=None, **options):
        super().__init__(**options)
        self.count = 0  # of the programs
        if profile is not None:
            path = self.folder / "profile.json"
            path.write_text(json.dumps({"name": "simulated small", **profile}))
            self.sim["SIMGPU_PROFILE"] = str(path)

    def lulld(self, *options, config=None, **more):
        """Contexts of the simulated GPU have no memory of their own: lulld counts none."""
        path = self.folder / "lulld.json"
        path.write_text(json.dumps({"context_bytes": 0, **(config or {})}))
        return super().lulld("--config", path, *options, **more)

    # ---- jobs
    def work(self, *arguments, job=None, way="--suspendable", options=(), program="moving_work", stays=False, required=True, **more):
        """`lull run` of the program; `way` None: as one that nobody moves. `stays`: it is there until its result is asked for,
        however late a busy machine lets the test come. `required`: once ready it is known to lulld, which must be there; without,
        it may run before lulld knows it, and says so."""
        words = [lab.BIN / "lull", "run", "--socket", self.socket, "--sim"]
        words += ["--require-coordinator"] if required else []
        words += [way] if way else []
        words += ["--job", job] if job else []
        self.count += 1
        leaves = self.folder / f"leaves-{self.count}" if stays else None
        if stays:
            more["PROGRAM_STAYS"] = leaves
        child = self.start(*words, *options, "--", lab.PROGRAMS / program, *arguments, shim=False,
                           **{"PROGRAM_SAY_STEPS": 1, "SIMGPU_DEVICE": self.device, **more})
        return Program(child, leaves)

    def undisturbed(self, *arguments, program="moving_work", **more):
        """The digest of the same work without lull, on a device of its own: a quick one, for bytes know no speed."""
        work = (program, arguments, tuple(sorted(more.items())))
        if work not in self.digests:
            code, out, err = self.run(lab.PROGRAMS / program, *arguments, shim=False, timeout=lab.DEADLINE_S * 5,
                                      SIMGPU_DEVICE=self.folder / f"alone-{len(self.digests)}", SIMGPU_PROFILE="", SIMGPU_SLOW_MOTION=1, **more)
            assert code == 0, err
            self.digests[work] = re.search(r"digest=([0-9a-f]+)", out)[1]
        return self.digests[work]

    # ---- orders
    def order(self, op, job, **more):
        """The job as lulld sees it then. Refused: with lulld's reason."""
        reply = self.ask({"op": op, "job": job, **more})
        if not reply.get("ok"):
            raise Refused(json.dumps(reply))
        return reply.get("job")

    def job(self, name):
        return next((j for j in self.status().get("jobs", []) if j["job"] == name), None)

    def reach(self, name, states, deadline_s=lab.DEADLINE_S):
        """Waits until the job is in one of the states."""
        last = {}

        def there():
            last["job"] = self.job(name)
            return last["job"] and last["job"]["state"] in states and last["job"]

        try:
            return lab.until(there, f"{name} is {'/'.join(states)}", deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; lulld says {json.dumps(last.get('job'))}") from None

    def suspend(self, name, level="out", at="now", deadline_s=lab.DEADLINE_S):
        """Until it is suspended, or goes on (then Refused, with the reason)."""
        self.order("suspend", name, level=level, at=at)
        state = self.reach(name, ("suspended", "running"), deadline_s)
        if state["state"] == "running" or level not in ("auto", state["level"]):
            raise Refused(state["reason"])
        return state

    def resume(self, name, wait=True):
        self.order("resume", name)
        return self.reach(name, ("running",)) if wait else None

    def migrate(self, name, to):
        self.order("migrate", name, to=to)
        return self.reach(name, ("running",))

    # ---- what the device says
    def usage(self):
        """Of each device: pid -> bytes. Whoever comes first makes the devices."""
        if not os.path.exists(self.device):
            return [{}]
        code, out, err = self.run(lab.PROGRAMS / "device_usage", self.device, shim=False)
        assert code == 0, err
        return [{p["pid"]: p["bytes"] for p in device} for device in json.loads(out)["devices"]]

    def held_by(self, pid):
        return [device.get(pid, 0) for device in self.usage()]

    def empty(self):
        """Nobody holds any memory. The dead are forgotten by whoever comes by later."""
        lab.until(lambda: not any(self.usage()), f"the devices are empty: {self.usage()}", step_s=0.05)

    def able(self, program):
        """Waits until the client has said what it can: from its first allocation on, also to a lulld that is new."""
        def said():
            client = self.client(program.pid)
            return not program.running() or client and client["residence"] and client["residence"]["can"]
        lab.until(said, f"{program.pid} says that it can be moved")
        return program

    def residence(self, pid):
        return lab.until(lambda: self._residence(pid), f"{pid} shares memory with lulld")

    @staticmethod
    def _residence(pid):
        try:
            return Residence(pid)
        except LookupError:
            return None


def seed_of(name):
    """The same every time; LULL_TEST_SEED=random takes one that no run has had, LULL_SEED=N that one."""
    usual = random.randrange(1 << 30) if os.environ.get("LULL_TEST_SEED") == "random" else 1
    seed = int(os.environ.get("LULL_SEED", usual))
    print(f"{name}: seed {seed} (LULL_SEED={seed} repeats it)", flush=True)
    return random.Random(seed)


def times(variable, otherwise):
    return int(os.environ.get(variable, otherwise))
