"""NVIDIA's Multi-Process Service, started for one step: a control daemon of our own, with pipes and logs in
folders of our own, gone behind the step. A service of somebody else is seen and left alone: with one at hand
every step of ours that needs MPS is skipped, and no child of ours becomes its client (`Context.env`)."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import time

from gpu_check.verdict import Skipped

BELOW_NORMAL = 1  # CUDA_MPS_CLIENT_PRIORITY; 0 is normal
_CONTROL = "nvidia-cuda-mps-control"
# Where a container may have the driver's programs besides PATH.
_FOLDERS = ("/usr/bin", "/usr/local/nvidia/bin", "/opt/nvidia/bin")
DEFAULT_PIPES = "/tmp/nvidia-mps"  # where every CUDA program looks when nothing else is said

_START_S = 20
_END_S = 20
_ASK_S = 20
_TICK_S = 0.02
# The name of a process as the kernel keeps it: 15 characters, the same of the control daemon and its servers.
_PROCESS_NAME = "nvidia-cuda-mps"
_RUNNING = "mps_running"  # in the results, as long as a service of ours does: its pipes


_ours = set()  # the process ids of all servers that daemons of ours started


def foreign(proc="/proc", pipes=None):
    """What there is of a service that is not ours, in words; empty when there is none. To be asked while no
    service of ours runs. `pipes`: the folders to look for a control socket in; without: those that a CUDA
    program here would use."""
    if pipes is None:
        pipes = dict.fromkeys(p for p in (os.environ.get("CUDA_MPS_PIPE_DIRECTORY"), DEFAULT_PIPES) if p)
    found = [f"{folder}/control" for folder in pipes if (pathlib.Path(folder) / "control").exists()]
    for process in pathlib.Path(proc).glob("[0-9]*"):
        try:
            name = (process / "comm").read_text().strip()
            state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue  # it is gone
        if name.startswith(_PROCESS_NAME) and state != "Z" and int(process.name) not in _ours:
            found.append(f"process {process.name} ({name})")
    return ", ".join(found)


def find_control():
    """The control program; None when there is none: in PATH, beside nvidia-smi, or where containers have the driver."""
    smi = shutil.which("nvidia-smi")
    beside = [str(pathlib.Path(smi).resolve().parent)] if smi else []
    return shutil.which(_CONTROL) or shutil.which(_CONTROL, path=os.pathsep.join([*beside, *_FOLDERS]))


def started_for(pipes, proc="/proc"):
    """The process ids of control daemons and servers with these pipes, whoever knows of them."""
    found = set()
    for process in pathlib.Path(proc).glob("[0-9]*"):
        if _text(process / "comm").startswith(_PROCESS_NAME) and f"CUDA_MPS_PIPE_DIRECTORY={pipes}" in _text(process / "environ").split("\0"):
            found.add(int(process.name))
    return found


def process_ids(text):
    """What the control program prints for get_server_list and get_client_list: one process id a line."""
    return [int(line) for line in text.split("\n") if line.strip().isdigit()]


# `Priority level of client {4711} is: 1 ..`; of two contexts of a process the last stands.
_PRIORITY = re.compile(r"Priority level of client \{(?:PID: *)?(\d+)[^}]*\} is: *(-?\d+)", re.I)


def granted_priorities(log):
    """{client pid: priority} as the server's log says it granted them."""
    return {int(pid): int(priority) for pid, priority in _PRIORITY.findall(log)}


class Service:
    """A running control daemon of ours, and its server once there is a client."""

    def __init__(self, context, control, folder):
        self._context, self._control = context, control
        self._servers = set()  # all that were ever listed
        self.pipes, self.logs = folder / "pipes", folder / "logs"
        for one in (self.pipes, self.logs):
            one.mkdir(parents=True, exist_ok=True)
        # Before it runs: whoever goes on behind a check that is killed at any moment ends what has these pipes.
        context.results.remember(_RUNNING, str(self.pipes))
        # In the foreground, so that it is ours to end.
        env = self.env()
        env["PATH"] = os.pathsep.join([env.get("PATH", os.defpath), str(pathlib.Path(control).parent)])  # the server lies beside it
        self.daemon = context.children.start([control, "-f"], env, "mps")

    def client(self, priority=None, threads=None):
        """The variables that make a program a client. `priority`: 0 or None normal, whatever lull runs it as, 1 below
        normal; `threads`: the percentage of the device's threads it may use, more than 0 to 100; None: as the driver has it."""
        more = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipes), "CUDA_MPS_LOG_DIRECTORY": str(self.logs),
                "CUDA_MPS_CLIENT_PRIORITY": str(priority or 0)}
        if threads is not None:
            more["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(threads)
        return more

    def env(self, priority=None, threads=None):
        """A client's whole environment."""
        return self._context.env(**self.client(priority, threads))

    def ask(self, command, wait_s=None):
        """What the control program prints for one command; None when it has not answered in time."""
        child = self._context.children.start([self._control], self.env(), "mps-control")
        child.say(command)
        child.process.stdin.close()
        answered = child.wait(_ASK_S if wait_s is None else wait_s) is not None
        text = child.out()
        if not answered:
            child.end()
        self._context.children.forget(child)
        return text if answered else None

    def servers(self):
        """The process ids of the daemon's servers."""
        listed = process_ids(self.ask("get_server_list") or "")
        self._servers.update(listed)
        _ours.update(listed)
        return listed

    def clients(self, server):
        """The process ids of a server's clients."""
        return process_ids(self.ask(f"get_client_list {server}") or "")

    def terminate_client(self, server, client, wait_s=None):
        """Ends what the client has on the device, as must be before a client with work in flight is killed. What
        the control program says, None when it has not answered in time."""
        return self.ask(f"terminate_client {server} {client}", wait_s)

    def log(self):
        """What the server has written down; empty before there is one."""
        return _text(self.logs / "server.log")

    def control_log(self):
        return _text(self.logs / "control.log")

    def priority_of(self, pid, wait_s=2.0):
        """What the server granted a client; None when its log does not say so in time."""
        end = time.monotonic() + wait_s
        while (granted := granted_priorities(self.log()).get(pid)) is None and time.monotonic() < end:
            time.sleep(_TICK_S)
        return granted

    def wait_ready(self):
        """Skipped when the service does not come up. A first client starts the server: where it fails, or works without
        one, MPS does not work here, and what is measured would be said of MPS and be of time slices."""
        context = self._context
        if not self.daemon.wait_for(lambda: (self.pipes / "control").exists(), context.timeout(_START_S)):
            raise Skipped("MPS cannot be started: " + self.daemon.last_words())
        first = [context.program(context.bin, "lull-device-probe"), "bystander", "--seconds", "0.02"]
        probe = context.children.run(first, self.env(), context.timeout(60))
        if not probe.good or any(word in probe.out for word in ('"failed"', '"skipped"', '"error"')):
            raise Skipped("MPS does not serve here: " + (probe.out.strip() or probe.why())[:200] + " ".join(self.log().splitlines()[-1:])[:200])
        if not self.servers():
            raise Skipped("MPS does not serve here: a program ran, and no server was started for it")

    def end(self):
        """Clients first: the daemon waits for them. What does not leave when asked is ended by its id."""
        self._context.children.end_behind(self.daemon)
        if self.daemon.running():
            self.ask("quit", _END_S)
            self.daemon.wait(_END_S)
        self.daemon.end()
        # Also one that nobody listed: behind a fault the daemon may have started another.
        left = self._servers | started_for(self.pipes)
        _ours.update(left)
        for server in left:
            _end_server(server)
        self._context.results.remember(_RUNNING, None)


def end_leftover(results):
    """Ends what a check that was killed while it used MPS left running: it would pass for somebody else's. Each by its
    id, where that is of a service with the pipes that were written down."""
    if pipes := results.data.get(_RUNNING):
        for process in started_for(pipes):
            _end_server(process)
        results.remember(_RUNNING, None)


def _text(path):
    try:
        return path.read_text(errors="replace")
    except OSError:  # not there, or no longer
        return ""


def _end_server(pid):
    """A server leads a group of its own, and so outlives a daemon that had to be killed."""
    comm = pathlib.Path(f"/proc/{pid}/comm")
    for number in (signal.SIGTERM, signal.SIGKILL):
        end = time.monotonic() + 2
        if _text(comm).startswith(_PROCESS_NAME):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        while _text(comm).startswith(_PROCESS_NAME) and time.monotonic() < end:
            time.sleep(_TICK_S)


class Simulated:
    """What the simulated GPU has for a service: kernels of all processes together, on a device of their own."""

    def __init__(self, context):
        self._context = context

    def env(self, priority=None, threads=None):
        if priority is not None or threads is not None:
            raise Skipped("the simulated GPU knows neither priorities of clients nor caps of their threads")
        return self._context.env(SIMGPU_DEVICE=self._context.scratch / "device-mps", SIMGPU_SHARING="mps")

    def priority_of(self, _pid, _wait_s=0):
        return None


@contextlib.contextmanager
def together(context):
    """`service`, and `Simulated` on the simulated GPU."""
    if context.sim:
        yield Simulated(context)
    else:
        with service(context) as served:
            yield served


_serial = 0


@contextlib.contextmanager
def service(context):
    """A `Service` that answers. Skipped where MPS cannot be started, and where somebody else's runs."""
    global _serial
    context.needs_gpu("MPS is the real driver's")
    control = find_control()
    if control is None:
        raise Skipped(f"no {_CONTROL} on this machine")
    if seen := context.foreign_mps() or foreign():
        raise Skipped(f"MPS of somebody else is here ({seen}): it is left alone, and a second server on one GPU would only take turns with it")
    _serial += 1
    one = Service(context, control, context.scratch / f"mps{_serial}")
    try:
        one.wait_ready()
        yield one
    finally:
        one.end()
