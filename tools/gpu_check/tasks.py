"""Programs that run until they are told to stop and report each iteration: lull-play and models.py,
with or without lull. All iterations are kept; what is measured is a window of time over them."""

import json
import signal

from gpu_check.figures import ratio, spread
from gpu_check.verdict import Failed, Skipped

WITHOUT_TORCHVISION = ("bert", "mlp", "decoder")
_READY_S = 180
_FINISH_S = 20
_EXIT_S = 8  # PyTorch takes a while to leave the device, MPS too


class Task:
    """`words(report, start_file, pause_file)`: the program. `daemon`: under lull; None: without it."""

    _serial = 0

    def __init__(self, context, name, words, daemon=None, priority=None, env=None):
        Task._serial += 1
        stem = context.scratch / f"task-{Task._serial}"
        self.name, self.context = name, context
        self._report, self._start = stem.with_suffix(".report"), stem.with_suffix(".start")
        self._pause = stem.with_suffix(".pause")
        program = [str(word) for word in words(self._report, self._start, self._pause)]
        if daemon is not None:
            options = ["--name", name[:50]] + (["--priority", priority] if priority else [])
            program = context.lull_run(daemon.socket, *options) + program
        self.child = context.children.start(program, env or context.env(), "task")
        self.iterations, self.ready_event, self.done = [], None, False
        self._read, self._stopped = 0, False

    def poll(self):
        if self._report.exists():
            with open(self._report) as file:
                file.seek(self._read)
                text = file.read()
            whole = text[:text.rfind("\n") + 1]
            self._read += len(whole.encode())
            for line in whole.splitlines():
                event = json.loads(line)
                if event.get("event") == "ready":
                    self.ready_event = event
                elif event.get("event") == "iteration":
                    self.iterations.append((event["start_ns"], event["end_ns"]))
                elif event.get("event") == "done":
                    self.done = True
        return True

    def wait_ready(self):
        seen = self.child.wait_for(lambda: self.poll() and self.ready_event, self.context.timeout(_READY_S))
        if not seen:
            self.child.end()
            raise Failed(f"{self.name} does not get ready: {self.child.last_words()}")

    def begin(self):
        self._start.touch()

    def pause(self):
        self._pause.touch()

    def go_on(self):
        self._pause.unlink(missing_ok=True)

    def must_run(self):
        self.poll()
        if not self.child.running() and not self.done:
            raise Failed(f"{self.name} ended: {self.child.last_words()}")

    def stop(self):
        """Asks it to end; `finish` waits for it."""
        if not self._stopped:
            self._stopped = True
            self.child.signal(signal.SIGTERM)
            self.go_on()

    def finish(self):
        self.stop()
        self.child.wait_for(lambda: self.poll() and self.done, _FINISH_S)
        self.child.end(_EXIT_S)
        self.poll()


def played(context, workload, seed):
    play = context.program(context.bin, "lull-play")
    return lambda report, start, pause: [play, workload, "--until-signal", "--report", report, "--start-file", start,
                                         "--pause-file", pause, "--seed", seed]


def model(context, name, *options):
    torch = context.torch()
    if name not in WITHOUT_TORCHVISION and not torch.get("torchvision"):
        raise Skipped("no torchvision beside this PyTorch")
    python = torch["python"]
    return lambda report, start, pause: [python, context.root / "tools/gpu_check/models.py", name, *options, "--until-signal",
                                         "--report", report, "--start-file", start, "--pause-file", pause]


def lengths(iterations, *windows):
    """Of the iterations that lie whole in one of the windows, in ns."""
    return [end - start for start, end in iterations if any(start >= w[0] and end <= w[1] for w in windows)]


def rate(iterations, *windows):
    """Iterations a second; one cut by a window's edge counts by its share inside. None without any."""
    length = sum(w[1] - w[0] for w in windows)
    if length <= 0:
        return None
    done = sum((min(end, w[1]) - max(start, w[0])) / (end - start)
               for w in windows for start, end in iterations if end > start and end > w[0] and start < w[1])
    return done / length * 1e9


def measured(iterations, windows, alone=None):
    """A row's figures, in ms; slowdowns and throughput against `alone`, another such row."""
    row = {**spread([ns / 1e6 for ns in lengths(iterations, *windows)]), "per_s": rate(iterations, *windows)}
    if alone is not None:
        row["slowdown_p50"] = ratio(row.get("p50"), alone.get("p50"))
        row["slowdown_p99"] = ratio(row.get("p99"), alone.get("p99"))
        row["slowdown_mean"] = ratio(row.get("mean"), alone.get("mean"))
        row["throughput"] = ratio(row["per_s"], alone["per_s"])
    return row
