"""What a running lulld answers and does, as typed helpers. Each call asks once and keeps nothing open."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import time
from typing import Any

from lull.programs import LullError, complaint, program

LEVELS = {"realtime": 0, "high": 2, "normal": 5, "low": 7, "idle": 9}
_MOVING = {"stopping", "leaving", "returning", "waiting"}


class NoCoordinator(LullError):
    """No lulld answers there, or one that is not to be trusted."""


class Refused(LullError):
    """lulld says no, and why."""


@dataclasses.dataclass(frozen=True)
class Device:
    index: int
    uuid: str
    name: str
    total_bytes: int
    clients: list[int]  # ids of the tasks on it
    raw: dict[str, Any] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Task:
    """An attached program. `raw` has all that lulld says of it, also what is not named here."""

    id: int
    name: str
    job: str            # empty: a job of its own
    program: str
    pid: int            # as lulld sees it; 0 where it does not
    namespace_pid: int  # as the program's own container sees it
    uid: int
    priority: int       # 0 highest .. 9
    launches: int
    held_ns: int        # how long its launches were held, in all
    busy_share: float   # lately: part of the time in which it used a device
    held_share: float   # lately: part of the time in which it was held
    memory_bytes: int   # on all devices
    raw: dict[str, Any] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Job:
    """Where a job's memory is, and where it goes."""

    name: str
    state: str          # running, stopping, leaving, suspended, waiting, returning, lost
    level: str
    target: str
    pinned: bool
    moving_bytes: int
    moved_bytes: int
    bytes_per_s: float
    reason: str         # why it cannot be moved; empty: it can
    clients: list[int]
    raw: dict[str, Any] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Status:
    version: str
    pid: int
    policy: str
    simulated: bool
    uptime_s: float
    devices: list[Device]
    tasks: list[Task]
    jobs: list[Job]
    notices: list[str]
    raw: dict[str, Any] = dataclasses.field(repr=False)

    def task(self, name: str | int) -> Task:
        """The task of that name, pid or id. KeyError: there is none."""
        for task in self.tasks:
            if name in (task.name, task.pid, task.id):
                return task
        raise KeyError(name)


def ask(request: dict[str, Any], *, socket: str | None = None) -> dict[str, Any]:
    """lulld's whole answer to one request (coordinator/daemon/control.h lists them)."""
    words = [program(), "ask", "-", *(["--socket", str(socket)] if socket else [])]
    done = subprocess.run(words, input=json.dumps(request).encode(), capture_output=True, check=False)
    if not done.stdout:
        raise NoCoordinator(complaint(done.stderr))
    answer = json.loads(done.stdout)
    if not answer.get("ok"):
        raise Refused(answer.get("error", "lulld refuses without a reason"))
    return answer


def status(*, socket: str | None = None) -> Status:
    """Who shares the GPUs now."""
    raw = ask({"op": "status"}, socket=socket)
    return Status(version=raw.get("version", ""), pid=raw.get("pid", 0), policy=raw.get("policy", ""),
                  simulated=raw.get("simulated", False), uptime_s=raw.get("uptime_s", 0.0),
                  devices=[_device(one) for one in raw.get("devices", [])],
                  tasks=[_task(one) for one in raw.get("clients", [])],
                  jobs=[_job(one) for one in raw.get("jobs", [])], notices=raw.get("notices", []), raw=raw)


def policy(*, socket: str | None = None) -> str:
    """The launch policy, with its options."""
    return ask({"op": "policy"}, socket=socket)["policy"]


def set_policy(text: str, *, socket: str | None = None) -> str:
    """Changes the launch policy, as "fikit epsilon_us=5"; the operator's right. Returns it as lulld has it."""
    return ask({"op": "policy", "policy": text}, socket=socket)["policy"]


def set_priority(task: str | int, level: str | int, *, socket: str | None = None) -> list[int]:
    """Of a task by name, pid or id: 0 (highest) to 9, or realtime, high, normal, low, idle. The ids changed."""
    return ask({"op": "priority", "task": str(task), "level": LEVELS.get(level, level)}, socket=socket)["changed"]


def kernels(client: int, *, socket: str | None = None) -> list[dict[str, Any]]:
    """The kernels of a task by id: name, launches, predicted_ns."""
    return ask({"op": "kernels", "client": client}, socket=socket)["kernels"]


def profiles(*, socket: str | None = None) -> list[dict[str, Any]]:
    """What is kept of tasks between runs."""
    return ask({"op": "profile"}, socket=socket)["profiles"]


def suspend(job: str | int, *, level: str = "auto", at: str = "iteration", wait_s: float = 0,
            socket: str | None = None) -> Job:
    """Stops a job by name, task or pid, and moves its memory off the GPU.

    level: in_place, out, given_up, or auto; at: iteration (where it holds least) or now. wait_s: how long
    to wait until it is suspended, 0 not at all; TimeoutError after it.
    """
    answer = ask({"op": "suspend", "job": str(job), "level": level, "at": at}, socket=socket)
    return _moved(_job(answer["job"]), wait_s, socket)


def resume(job: str | int, *, wait_s: float = 0, socket: str | None = None) -> Job:
    """Brings its memory back, as soon as there is room for it, and lets it go on."""
    return _moved(_job(ask({"op": "resume", "job": str(job)}, socket=socket)["job"]), wait_s, socket)


def migrate(job: str | int, to: list[str | int], *, wait_s: float = 0, socket: str | None = None) -> Job:
    """Moves it to these GPUs, by UUID or index."""
    answer = ask({"op": "migrate", "job": str(job), "to": list(to)}, socket=socket)
    return _moved(_job(answer["job"]), wait_s, socket)


def pin(job: str | int, pinned: bool = True, *, socket: str | None = None) -> Job:
    """A pinned job is left where it is."""
    return _job(ask({"op": "pin", "job": str(job), "pinned": pinned}, socket=socket)["job"])


def resize(job: str | int, gpus: int, *, socket: str | None = None) -> Job:
    """Gives it this many GPUs."""
    return _job(ask({"op": "resize", "job": str(job), "gpus": gpus}, socket=socket)["job"])


def _device(raw):
    return Device(index=raw.get("index", 0), uuid=raw.get("uuid", ""), name=raw.get("name", ""),
                  total_bytes=raw.get("total_bytes", 0), clients=raw.get("clients", []), raw=raw)


def _task(raw):
    return Task(id=raw["id"], name=raw.get("task", ""), job=raw.get("job", ""), program=raw.get("program", ""),
                pid=raw.get("pid", 0), namespace_pid=raw.get("namespace_pid", raw.get("pid", 0)), uid=raw.get("uid", 0),
                priority=raw.get("priority", 5), launches=raw.get("launches", 0), held_ns=raw.get("held_ns", 0),
                busy_share=raw.get("busy_share", 0.0), held_share=raw.get("held_share", 0.0),
                memory_bytes=sum(device.get("memory_bytes", 0) for device in raw.get("devices", [])), raw=raw)


def _job(raw):
    return Job(name=raw.get("job", ""), state=raw.get("state", ""), level=raw.get("level", ""), target=raw.get("target", ""),
               pinned=raw.get("pinned", False), moving_bytes=raw.get("moving_bytes", 0),
               moved_bytes=raw.get("moved_bytes", 0), bytes_per_s=raw.get("bytes_per_s", 0.0),
               reason=raw.get("reason") or "", clients=raw.get("clients", []), raw=raw)


def _moved(job, wait_s, socket):
    """The job once it moves no more. The first look is at once: what took no time has been done."""
    end = time.monotonic() + wait_s
    while wait_s > 0 and job.state in _MOVING:
        if time.monotonic() > end:
            raise TimeoutError(f"job {job.name} is {job.state} after {wait_s} s: {job.reason or 'it takes longer'}")
        time.sleep(0.05)
        job = next((one for one in status(socket=socket).jobs if one.name == job.name), job)
    return job
