"""Steps of part suspension: lull moves a whole job, out and back and given up and back, held against a pinned copy of
the same bytes and against the driver's checkpoint alone."""

import time

from gpu_check import mps
from gpu_check.led import Led
from gpu_check.steps import Step
from gpu_check.verdict import Failed, decision

_QUESTION = 7
_MIB, _GIB = 1 << 20, 1 << 30
_JOB = "moved"
_LOOK_S = 0.002
MOST_TIMES = 1.3  # of a pinned copy of the same bytes, from 64 MB up


def _until(context, what, seen, wait_s):
    end = time.monotonic() + context.timeout(wait_s)
    while time.monotonic() < end:
        found = seen()
        if found:
            return found
        time.sleep(_LOOK_S)
    raise Failed(f"within {wait_s:.0f} s: never {what}")


class Moved:
    """A job under a lulld of its own; `program`: in words, led as lull-device-probe's `hold` is."""

    def __init__(self, context, daemon, name, program, env):
        self.context, self.daemon = context, daemon
        self.led = Led(context, name, env, under=context.lull_run(daemon.socket, "--suspendable", "--job", _JOB), program=program)

    def status(self):
        status = self.daemon.status()
        job = next((j for j in status.get("jobs", []) if j["job"] == _JOB), None)
        client = next((c for c in status.get("clients", []) if c["pid"] == self.led.pid), None)
        if job is None or client is None or client.get("residence") is None:
            raise Failed(f"lulld knows no such job: {job or 'none'}; the program ended: {self.led.child.last_words()}")
        return job, client["residence"]

    def prepared(self):
        """Its host memory is populated and pinned, as in a job that has run for a while."""
        def ready():
            _, residence = self.status()
            return residence["swappable_bytes"] > 0 and residence["host_bytes"] >= residence["swappable_bytes"] and residence
        try:
            return _until(self.context, "prepared", ready, 120)
        except Failed as why:
            _, residence = self.status()
            raise Failed(f"{why}: {residence['reason'] or residence}") from None

    def go(self, op, states, **more):
        """(seconds on the device's clock that it took from order to state, what the client says of the move alone)."""
        start = self.context.model_now_ns()
        answer = self.daemon.ask({"op": op, "job": _JOB, **more})
        if not answer.get("ok"):
            raise Failed(f"{op}: {answer.get('error', answer)}")

        def there():
            job, residence = self.status()
            return (job, residence) if job["state"] in states else None
        job, residence = _until(self.context, "/".join(states), there, 120)
        took_s = (self.context.model_now_ns() - start) / 1e9
        return job, residence, took_s

    def suspend(self, level):
        job, residence, took_s = self.go("suspend", ("suspended", "running"), level=level, at="now")
        if job["state"] == "running":
            raise Failed(f"suspend to {level}: {job['reason']}")
        return {"s": took_s, "ms": residence["move_ns"] / 1e6 / self.context.slow_motion, "bytes": residence["moved_bytes"],
                "stays": residence["fixed_bytes"]}

    def resume(self):
        _, residence, took_s = self.go("resume", ("running",))
        return {"s": took_s, "ms": residence["move_ns"] / 1e6 / self.context.slow_motion, "bytes": residence["moved_bytes"]}


def there_and_back(context, name, program, env, rounds, levels=("out", "given_up")):
    """[{level, bytes, out_ms, out_s, back_ms, back_s, intact}], the median round of each level by its way out."""
    rows = []
    with context.daemon(env=env) as daemon:
        job = Moved(context, daemon, name, program, env)
        with job.led:
            job.prepared()
            for level in levels:
                seen = []
                for _ in range(rounds):
                    out = job.suspend(level)
                    back = job.resume()
                    seen.append({"level": level, "bytes": out["bytes"], "stays": out["stays"], "out_ms": out["ms"], "out_s": out["s"],
                                 "back_ms": back["ms"], "back_s": back["s"]})
                row = sorted(seen, key=lambda one: one["out_ms"])[len(seen) // 2]
                row["intact"] = job.led.ask("check", 120)["intact"]
                rows.append(row)
    return rows


def driver_alone(context, name, program, env):
    """{out_ms, back_ms} of the driver's checkpoint of the same job without lull; or why not, in "refused"."""
    with Led(context, name, env, program=program) as led:
        answer = led.ask("checkpoint", 240)
        if "refused" in answer:
            return {"refused": answer["refused"]}
        ms = {call["call"]: call["ms"] / context.slow_motion for call in answer["calls"]}
        return {"out_ms": ms["lock"] + ms["checkpoint"], "back_ms": ms["restore"] + ms["unlock"], "intact": led.ask("check", 120)["intact"]}


def held_against(context, rows, size):
    copies = context.probe("suspend", "--bytes", size, "--prepared", "--rounds", 3, timeout_s=120)
    for row in rows:
        row["copy_out_ms"] = copies["copy_out_ms"] * row["bytes"] / copies["bytes"]
        row["copy_back_ms"] = copies["copy_back_ms"] * row["bytes"] / copies["bytes"]
    return rows


_COLUMNS = ["MB", "level", "out ms", "times a copy", "with the order s", "back ms", "times a copy", "with the order s", "driver alone out ms", "back ms", "intact"]


def _shown(rows):
    return [[row["bytes"] / 1e6, row["level"], row["out_ms"], row["out_ms"] / row["copy_out_ms"], row["out_s"], row["back_ms"],
             row["back_ms"] / row["copy_back_ms"], row["back_s"], row.get("alone", {}).get("out_ms"), row.get("alone", {}).get("back_ms"), row["intact"]]
            for row in rows]


def verdict(rows):
    """(answer, sentence): whether lull's moves of memory alone stay within the bar."""
    times = {f"{row['bytes'] / 1e6:.0f} MB": max(row["out_ms"] / row["copy_out_ms"], row["back_ms"] / row["copy_back_ms"])
             for row in rows if row["level"] == "out"}
    said = ", ".join(f"{size} {factor:.2f}x" for size, factor in times.items())
    kept = all(factor <= MOST_TIMES for factor in times.values())
    return ("yes" if kept else "no"), f"Out or back against a pinned copy: {said}."


def _step(name, program_of, sizes_of):
    def run(context):
        rows = []
        for size in sizes_of(context):
            program, env = program_of(context, size), context.env()
            moved = held_against(context, there_and_back(context, name, program, env, 1 if context.short else 3), size)
            alone = driver_alone(context, name, program, env)
            for row in moved:
                row["alone"] = alone
            rows += moved
        data = {"answer": rows, "tables": [{"title": f"{name}, moved by lull", "columns": _COLUMNS, "rows": _shown(rows)}],
                "decision": decision(context, _QUESTION, f"does lull move a job ({name}) within {MOST_TIMES}x of a pinned copy?", *verdict(rows)),
                "profile": {f"moved_{name.replace(' ', '_')}": {f"{row['bytes'] / 1e6:.0f} MB, {row['level']}": {
                    key: round(row[key], 2) for key in ("out_ms", "back_ms")} for row in rows}}}
        if not all(row["intact"] for row in rows):
            raise Failed("memory that lull brought back is not what it was", data)
        return data
    return run


def _held(context, size):
    return [context.program(context.bin, "lull-device-probe"), "hold", "--bytes", size]


def _held_sizes(context):
    return [64 * _MIB] if context.short else [64 * _MIB, 256 * _MIB] if context.sim else [64 * _MIB, _GIB, 8 * _GIB]


def _model(context, size):
    return [context.torch()["python"], context.root / "tools/gpu_check/held_model.py", size]


def _model_sizes(context):
    context.torch()  # skipped here, before anything is started
    return [_GIB, 8 * _GIB]


def _mps(context):
    """A client of MPS: its memory moves; the driver's checkpoint is asked for, and refused with a reason."""
    size = _held_sizes(context)[0]
    with mps.service(context) as service:
        rows = held_against(context, there_and_back(context, "hold", _held(context, size), service.env(), 3, levels=("out",)), size)
        refused = ""
        try:
            there_and_back(context, "hold", _held(context, size), service.env(), 1, levels=("given_up",))
        except Failed as why:
            refused = str(why)
    data = {"answer": rows, "lines": [f"level given_up: {refused or 'works'}"],
            "tables": [{"title": "a client of MPS, moved by lull", "columns": _COLUMNS, "rows": _shown(rows)}]}
    if not all(row["intact"] for row in rows):
        raise Failed("memory of a client of MPS that lull brought back is not what it was", data)
    return data


def steps():
    return [Step("lull moves a job", _step("hold", _held, _held_sizes), 60, question=_QUESTION),
            Step("lull moves PyTorch", _step("PyTorch", _model, _model_sizes), 80, question=_QUESTION),
            Step("lull moves a client of MPS", _mps, 40, question=_QUESTION)]
