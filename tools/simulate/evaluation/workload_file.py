"""A workload as it is written: kernels, operations and the host's pauses between them, in the format of
tools/play/workload.h. Pure; lengths are whole nanoseconds."""

import json

LAUNCH_NS = 3680        # host time of a launch: measured on an H100, docs/hardware
SHORTEST_KERNEL_NS = 2000


class Program:
    """One iteration of a program, operation by operation. `pause_ns(n)`: the host's time before the n-th launch, where
    nothing else is said; `length(n)`: how much longer than usual that takes."""

    def __init__(self, name, kind, description, streams=1, pause_after_ns=0, pause_ns=lambda n: 2000, length=lambda n: 1.0):
        self.name, self.kind, self.description, self.length = name, kind, description, length
        self.streams, self.pause_after_ns, self.pause_ns = streams, pause_after_ns, pause_ns
        self.kernels, self.ops = {}, []
        self.launches = self.kernel_ns = self.host_ns = 0

    def launch(self, name, blocks, threads, length_ns, stream=0, pause_ns=None, shared_bytes=0):
        key = (name, max(1, min(int(blocks), 1_000_000)), threads, shared_bytes)
        length_ns = max(SHORTEST_KERNEL_NS, round(length_ns * self.length(self.launches)))
        index = self.kernels.setdefault(key, len(self.kernels))
        self.launches += 1
        self.kernel_ns += length_ns
        self._add({"launch": index, "duration_ns": length_ns}, stream, pause_ns, LAUNCH_NS)

    def copy(self, direction, size, stream=0, pause_ns=None, pageable=False):
        op = {"copy": direction, "bytes": max(1, round(size))}
        if pageable:
            op["memory"] = "pageable"
        self._add(op, stream, pause_ns, LAUNCH_NS)

    def wait_for_stream(self, stream=0, pause_ns=2000):
        self._add({"sync": "stream"}, stream, pause_ns)

    def read_back(self, size, stream=0, pause_ns=None):
        """A result comes to the host, which waits for it."""
        self.copy("d2h", size, stream, pause_ns)
        self.wait_for_stream(stream)

    def record(self, event, stream):
        self._add({"record": event}, stream, 0, 1250)  # measured on an H100, docs/hardware

    def wait(self, event, stream):
        self._add({"wait": event}, stream, 0, 1000)

    def _add(self, op, stream, pause_ns, call_ns=None):
        pause_ns = round(self.pause_ns(self.launches) if pause_ns is None else pause_ns)
        if stream:
            op["stream"] = stream
        if pause_ns:
            op["pause_ns"] = pause_ns
        if call_ns is not None and call_ns != LAUNCH_NS:
            op["call_ns"] = call_ns
        self.host_ns += pause_ns + (call_ns or 0)
        self.ops.append(op)

    def longest_kernel_ns(self):
        return max((op["duration_ns"] for op in self.ops if "launch" in op), default=0)

    def about_ns(self):
        """How long an iteration takes alone, roughly: the device's work or the host's, whichever is more."""
        return max(self.kernel_ns, self.host_ns) + self.pause_after_ns

    def text(self):
        head = {"lull_workload": 1, "name": self.name, "kind": self.kind, "description": self.description,
                "streams": self.streams, "call_ns": LAUNCH_NS, "pause_after_ns": round(self.pause_after_ns)}
        kernels = [{"name": name, "grid": [blocks], "block": [threads], **({"shared_bytes": shared} if shared else {})}
                   for name, blocks, threads, shared in self.kernels]
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        lines += ['"kernels": [\n' + ",\n".join(map(json.dumps, kernels)) + "\n]",
                  '"ops": [\n' + ",\n".join(map(json.dumps, self.ops)) + "\n]"]
        return "{\n" + ",\n".join(lines) + "\n}\n"
