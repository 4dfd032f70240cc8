#!/usr/bin/env python3
"""An independent model of one serial device, to check `lull simulate` and `lull compare` against.

One non-preemptive device serves kernels of two programs in the order in which they become first of
their streams; one copy engine for each direction. The high task replays its workload in a closed loop,
the low one too, or greedily (without host pauses). Three rules for the low task's launches:

  share     any time, as far as its run-ahead goes
  priority  whenever no kernel of the high task is outstanding, with at most `in_flight_us` in flight
            (a longer one alone)
  fikit     only if its mean length fits what is left of the mean pause after the high task's last
            kernel, behind what was let go before it, and more than `epsilon_us` is left

What the coordinator sees and decides reaches the other side `control_latency_us` later; completions it
only sees by polling, `poll_us` later still. Lengths and pauses (from a kernel's end to the next
kernel's start) are means over the high task's run alone. Written apart from the simulated GPU and the policies,
in another language and another shape, so that they do not share their mistakes. No watchdog.

  serial_model.py --high FILE --low FILE [--policy share|priority|fikit|all] [--low-greedy] [--iterations N]

reads workloads of this repository's JSON format (examples/workloads) and prints JSON.
"""
import argparse
import collections
import heapq
import json
import sys

RUN_AHEAD = 1024      # operations a program may have in flight
GREEDY_CALL_NS = 1000  # host time of a call that nothing else is known about
COPY_LATENCY_NS = 1500
COPY_NS_PER_BYTE = {"h2d": 1 / 55, "d2h": 1 / 55, "d2d": 1 / 1300, "memset": 1 / 2600}
PAGEABLE_FACTOR = 0.25
ENGINE = {"kernel": "compute", "d2d": "compute", "memset": "compute", "h2d": "h2d", "d2h": "d2h"}
FOREVER = float("inf")


def read_workload(path):
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    if data.get("lull_workload") != 1:
        raise ValueError(f"{path}: not a workload of version 1")
    data["flat"] = list(flatten(data["ops"]))
    # Every iteration ends with a wait for everything.
    if not data["flat"] or data["flat"][-1].get("sync") != "device":
        data["flat"].append({"sync": "device"})
    return data


def flatten(ops):
    for op in ops:
        if "repeat" in op:
            for _ in range(op["repeat"]):
                yield from flatten(op["ops"])
        else:
            yield op


class Item:
    """One thing in a stream."""

    __slots__ = ("program", "kind", "work", "key", "after", "done", "end", "queued")

    def __init__(self, program, kind, work=0, key=None, after=None):
        self.program, self.kind, self.work, self.key, self.after = program, kind, work, key, after
        self.done, self.end, self.queued = False, None, False


class Program:
    """A host thread that plays a workload over and over, and its streams."""

    def __init__(self, workload, greedy=False):
        self.name = workload["name"]
        self.ops = workload["flat"]
        self.kernels = workload.get("kernels", [])
        self.call_ns = workload.get("call_ns", 0)
        self.pause_after_ns = workload.get("pause_after_ns", 0)
        self.greedy = greedy
        self.streams = [collections.deque() for _ in range(workload.get("streams", 1))]
        self.events = {}
        self.in_flight = 0
        self.position = 0
        self.waiting_for = None  # a predicate, during a sync
        self.held = None         # the launch the gate does not let go
        self.started = 0
        self.finished = []       # (start, end) of iterations
        self.call_at = 0
        self.busy_ns = 0
        self.plan_call(0)

    def plan_call(self, ready):
        pause = 0 if self.greedy else self.ops[self.position].get("pause_ns", 0)
        self.call_at = ready + pause

    def next_op(self, returned):
        self.position += 1
        if self.position < len(self.ops):
            self.plan_call(returned)
            return
        self.finished.append((self.started, returned))
        self.position = 0
        self.started = returned + (0 if self.greedy else self.pause_after_ns)
        self.plan_call(self.started)

    def item_of(self, op):
        if "launch" in op:
            kernel = self.kernels[op["launch"]]
            key = (self.name, kernel["name"], tuple(kernel.get("grid", [1])), tuple(kernel.get("block", [1])),
                   kernel.get("shared_bytes", 0))
            return Item(self, "kernel", max(1, op.get("duration_ns", kernel.get("duration_ns", 1))), key)
        if "copy" in op or "memset" in op:
            kind = op.get("copy", "memset")
            speed = PAGEABLE_FACTOR if op.get("memory") == "pageable" and kind != "d2d" else 1
            size = op.get("bytes", op.get("memset", 0))
            return Item(self, kind, COPY_LATENCY_NS + int(size * COPY_NS_PER_BYTE[kind] / speed))
        if "wait" in op:
            return Item(self, "marker", after=self.events.get(op["wait"]))
        return Item(self, "marker")

    def step(self, now, gate):
        """Acts as far as the host can at `now`; True if it did anything."""
        if self.waiting_for is not None:
            if not self.waiting_for():
                return False
            self.waiting_for = None
            self.next_op(now)
            return True
        if self.call_at > now:
            return False
        op = self.ops[self.position]
        if "sync" in op:
            streams = self.streams if op["sync"] == "device" else [self.streams[op.get("stream", 0)]]
            self.waiting_for = lambda: not any(streams)
            return True
        if self.in_flight >= RUN_AHEAD:
            return False
        item = self.held or self.item_of(op)
        if item.kind == "kernel" and not gate.may_go(self, item, now):
            self.held = item
            return False
        self.held = None
        if "record" in op:
            self.events[op["record"]] = item
        self.streams[op.get("stream", 0)].append(item)
        self.in_flight += 1
        gate.submitted(self, item, now)
        call = GREEDY_CALL_NS if self.greedy else max(op.get("call_ns", self.call_ns), 1)
        self.next_op(now + call)
        return True


class OpenGate:
    """share, and every run alone."""

    next_at = FOREVER

    def may_go(self, program, item, now):
        return True

    def submitted(self, program, item, now):
        pass

    def completed(self, item, now):
        pass

    def step(self, now):
        return False


class CoordinatorGate(OpenGate):
    """What the coordinator knows is `latency` old; subclasses say what it decides."""

    def __init__(self, high, latency, poll, means):
        self.high, self.latency, self.poll, self.means = high, latency, poll, means
        self.news = []  # heap of (when it takes effect, order, what, its argument, when it was seen)
        self.told_count = 0
        self.high_units = 0

    @property
    def next_at(self):
        return self.news[0][0] if self.news else FOREVER

    def tell(self, seen, what, item):
        self.told_count += 1
        heapq.heappush(self.news, (seen + self.latency, self.told_count, what, item, seen))

    def length(self, item):
        return self.means["length"].get(item.key, item.work)

    def submitted(self, program, item, now):
        if item.kind == "kernel" and program is self.high:
            self.tell(now, self.high_submitted, item)

    def completed(self, item, now):
        if item.kind == "kernel":
            what = self.high_completed if item.program is self.high else self.low_completed
            self.tell(now + self.poll, what, item)

    def step(self, now):
        changed = False
        while self.news and self.news[0][0] <= now:
            _, _, what, item, at = heapq.heappop(self.news)
            what(item, at)
            changed = True
        return changed

    def high_submitted(self, item, at):
        self.high_units += 1

    def high_completed(self, item, at):
        self.high_units -= 1

    def low_completed(self, item, at):
        pass


class PriorityGate(CoordinatorGate):
    def __init__(self, high, latency, poll, means, limit):
        super().__init__(high, latency, poll, means)
        self.limit = limit
        self.low_in_flight = 0

    def may_go(self, program, item, now):
        if program is self.high:
            return True
        if self.high_units > 0:
            return False
        return self.low_in_flight == 0 or self.low_in_flight + self.length(item) <= self.limit

    def submitted(self, program, item, now):
        super().submitted(program, item, now)
        if item.kind == "kernel" and program is not self.high:
            self.low_in_flight += self.length(item)

    def low_completed(self, item, at):
        self.low_in_flight -= self.length(item)


class FikitGate(CoordinatorGate):
    def __init__(self, high, latency, poll, means, epsilon):
        super().__init__(high, latency, poll, means)
        self.epsilon = epsilon  # what is left of a pause and not worth filling
        self.gap = None      # [begin, end, free]
        self.visible = None  # the low head the coordinator knows of
        self.told = None     # ... and the one it has been told of
        self.released = None

    def may_go(self, program, item, now):
        if program is self.high:
            return True
        if self.released is item:
            return True
        if self.told is not item:
            self.told = item
            self.tell(now, self.low_waits, item)
        return False

    def low_waits(self, item, at):
        self.visible = item
        self.fill(at)

    def high_submitted(self, item, at):
        super().high_submitted(item, at)
        start = max(at, self.gap[0]) if self.gap and self.high_units > 1 else at
        begin = start + self.length(item)
        self.gap = [begin, begin + self.means["gap"].get(item.key, 0), begin]
        self.fill(at)

    def high_completed(self, item, at):
        super().high_completed(item, at)
        if self.gap and self.high_units == 0:
            shift = at - self.gap[0]
            self.gap = [x + shift for x in self.gap]
            self.fill(at)

    def low_completed(self, item, at):
        self.fill(at)

    def fill(self, at):
        if self.visible is None or self.gap is None:
            return
        start = max(at, self.gap[2])
        left = self.gap[1] - start
        if left > self.epsilon and self.length(self.visible) <= left:
            self.gap[2] = start + self.length(self.visible)
            self.released = self.visible
            self.visible = None


class Device:
    """Three engines, each one item at a time, in order of becoming first of its stream."""

    def __init__(self):
        self.queues = {"compute": collections.deque(), "h2d": collections.deque(), "d2h": collections.deque()}
        self.running = {}
        self.history = []  # (item, start, end) of kernels

    def next_at(self):
        return min((item.end for item in self.running.values()), default=FOREVER)

    def finish(self, now, gate):
        done = [engine for engine, item in self.running.items() if item.end <= now]
        for engine in done:
            item = self.running.pop(engine)
            if engine == "compute":
                item.program.busy_ns += item.work
            if item.kind == "kernel":
                self.history.append((item, item.end - item.work, item.end))
            item.done = True
            gate.completed(item, now)
        return bool(done)

    def queue_heads(self, programs):
        moved = False
        for program in programs:
            for stream in program.streams:
                while stream:
                    head = stream[0]
                    if not head.done and head.kind == "marker" and (head.after is None or head.after.done):
                        head.done = True
                    if head.done:
                        stream.popleft()
                        program.in_flight -= 1
                        moved = True
                        continue
                    if head.kind != "marker" and not head.queued:
                        head.queued = True
                        self.queues[ENGINE[head.kind]].append(head)
                        moved = True
                    break
        return moved

    def start(self, now):
        for engine, queue in self.queues.items():
            if engine not in self.running and queue:
                item = queue.popleft()
                item.end = now + item.work
                self.running[engine] = item


def run(programs, gate, iterations):
    """Until the first program has done its iterations. Returns (elapsed ns, device)."""
    device = Device()
    now = 0
    while len(programs[0].finished) < iterations:
        again = True
        while again:
            again = gate.step(now)
            again |= device.finish(now, gate)
            again |= device.queue_heads(programs)
            for program in programs:
                again |= program.step(now, gate)
            device.start(now)
        if len(programs[0].finished) >= iterations:
            break
        hosts = [p.call_at for p in programs if p.waiting_for is None and p.call_at > now]
        now_next = min([device.next_at(), gate.next_at] + hosts)
        if now_next == FOREVER:
            raise RuntimeError("the model has come to a standstill")
        now = now_next
    return max(1, programs[0].finished[iterations - 1][1]), device


def means_of(history):
    lengths, gaps = collections.defaultdict(list), collections.defaultdict(list)
    for i, (item, start, end) in enumerate(history):
        lengths[item.key].append(end - start)
        if i + 1 < len(history):
            gaps[item.key].append(max(0, history[i + 1][1] - end))
    return {"length": {k: sum(v) / len(v) for k, v in lengths.items()},
            "gap": {k: sum(v) / len(v) for k, v in gaps.items()}}


def mean_jct(program):
    return sum(end - start for start, end in program.finished) / len(program.finished)


def compare(high, low, policy, iterations=20, low_greedy=True, latency_ns=10_000, poll_ns=5_000,
            in_flight_ns=50_000, epsilon_ns=10_000):
    alone = Program(high)
    _, alone_device = run([alone], OpenGate(), iterations)
    low_alone = Program(low)
    _, low_device = run([low_alone], OpenGate(), 1)
    means = means_of(alone_device.history)
    low_means = means_of(low_device.history)
    means["length"] = {**low_means["length"], **means["length"]}
    first, second = Program(high), Program(low, greedy=low_greedy)
    if policy == "share":
        gate = OpenGate()
    elif policy == "priority":
        gate = PriorityGate(first, latency_ns, poll_ns, means, in_flight_ns)
    elif policy == "fikit":
        gate = FikitGate(first, latency_ns, poll_ns, means, epsilon_ns)
    else:
        raise ValueError(f"policy {policy}: share, priority or fikit")
    elapsed, _ = run([first, second], gate, iterations)
    return {
        "policy": policy,
        "elapsed_ms": elapsed / 1e6,
        "high": {"jct_ms_mean": mean_jct(first) / 1e6, "slowdown": mean_jct(first) / mean_jct(alone),
                 "device_share": first.busy_ns / elapsed},
        "low": {"device_share": second.busy_ns / elapsed, "completed": len(second.finished)},
        "gpu_busy": (first.busy_ns + second.busy_ns) / elapsed,
    }


def main():
    parser = argparse.ArgumentParser(description="independent serial model of two tasks on one device")
    parser.add_argument("--high", required=True)
    parser.add_argument("--low", required=True)
    parser.add_argument("--policy", default="all", choices=["share", "priority", "fikit", "all"])
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--low-greedy", action="store_true")
    parser.add_argument("--control-latency-us", type=float, default=10)
    parser.add_argument("--poll-us", type=float, default=5)
    parser.add_argument("--in-flight-us", type=float, default=50)
    parser.add_argument("--epsilon-us", type=float, default=10)
    arguments = parser.parse_args()
    try:
        high, low = read_workload(arguments.high), read_workload(arguments.low)
    except (OSError, ValueError, KeyError) as error:
        print(f"serial_model: cannot read a workload: {error}", file=sys.stderr)
        return 1
    policies = ["share", "priority", "fikit"] if arguments.policy == "all" else [arguments.policy]
    rows = [compare(high, low, policy, arguments.iterations, arguments.low_greedy,
                    int(arguments.control_latency_us * 1000), int(arguments.poll_us * 1000),
                    int(arguments.in_flight_us * 1000), int(arguments.epsilon_us * 1000))
            for policy in policies]
    json.dump({"model": "serial", "high": high["name"], "low": low["name"],
               "low_greedy": arguments.low_greedy, "iterations": arguments.iterations, "rows": rows},
              sys.stdout, indent=2)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
