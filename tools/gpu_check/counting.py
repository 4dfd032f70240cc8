"""Runs a program under lull with the kernel witness in it, and says whether both saw the same."""

import re
import time

from gpu_check import witness
from gpu_check.verdict import Failed, Skipped

_AGREE_WAIT_S = 6.0
_REST_S = 0.5  # without a record: all have been drained
NOT_HERE = 77  # exit code of a program whose library is missing


def said(line):
    """{launches: 7, ..} of a program's last line; empty when it cannot know."""
    return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line or "")}


def against_program(client, kernels, own):
    """Lines where lull disagrees with what the program knows of itself."""
    lines = [f"{key}: the program made {own[key]}, lull counted {client[key]}"
             for key in ("launches", "graph_kernels", "copies", "memsets") if key in own and own[key] != client[key]]
    unnamed = [k for k in kernels if k["launches"] and not k["name"]]
    if unnamed:
        lines.append(f"{len(unnamed)} kernels without a name")
    return lines


class Counted:
    def __init__(self, client, kernels, own, seen, code, differences):
        self.client, self.kernels, self.own, self.seen = client, kernels, own, seen
        self.code, self.differences = code, differences

    def row(self, what):
        graphs = sum(k["launches"] for k in self.kernels if k["kind"] == "graph")
        driver = len(self.seen.kernels) if self.seen else None
        return [what, self.client["launches"] - graphs, graphs, self.client["graph_kernels"], driver,
                self.own.get("launches"), len([k for k in self.kernels if k["kind"] == "kernel" and k["launches"]]),
                self.client["dropped"], "agree" if not self.differences else "DIFFER"]


COLUMNS = ["program", "lull: kernels", "graphs", "kernels in graphs", "driver: kernels (CUPTI)", "program's own count of launches",
           "kernels by name and shape", "dropped", "verdict"]


def cupti_env(context, env):
    """Adds the witness to a program's environment. False when there is no CUPTI here."""
    library = context.find_library("libcupti.so.13") or context.find_library("libcupti.so.12")
    injected = context.lib / "check/libkernel_witness.so"
    if context.sim or library is None or not injected.exists():
        return False
    env["CUDA_INJECTION64_PATH"] = str(injected)
    env["LULL_WITNESS_CUPTI"] = str(library)
    return True


_serial = 0


def count(context, daemon, words, env=None, timeout_s=60, witnessed=True):
    """Counted. Failed when the program fails under lull alone, Skipped when it fails without lull too."""
    global _serial
    _serial += 1
    env = dict(env or context.env())
    prefix = context.scratch / f"witness-{_serial}"
    wait_file = context.scratch / f"go-on-{_serial}"
    env.update(PROGRAM_WAIT_FILE=str(wait_file), LULL_WITNESS_OUT=str(prefix))
    witnessed = witnessed and cupti_env(context, env)
    child = context.children.start(context.lull_run(daemon.socket) + list(words), env, "counted")
    finished = child.wait_for(lambda: child.line_with("launches=") is not None, context.timeout(timeout_s))
    if not finished:
        child.end()
        if child.code() == NOT_HERE:
            raise Skipped(child.last_words())
        bare = context.run(words, timeout_s, {k: v for k, v in env.items() if k not in ("CUDA_INJECTION64_PATH", "PROGRAM_WAIT_FILE")})
        what = " ".join(str(w).rsplit("/", 1)[-1] for w in words[:4])
        if not bare.good:
            raise Skipped(f"{what} fails without lull too: {bare.why()}")
        raise Failed(f"{what} works without lull and not under it: {child.last_words()}")
    own = said(child.line_with("launches="))
    client, kernels = _settled(daemon, child.pid, own.get("launches"))
    wait_file.touch()
    code = child.wait(context.timeout(30))
    if code is None:
        child.end()
    if client is None:
        raise Failed(f"{words[0]}: the daemon knows no client of its pid")
    seen = witness.read(prefix, child.pid) if witnessed else None
    if seen is not None and not seen.usable():
        seen = None
    lines = against_program(client, kernels, own)
    if seen is not None:
        lines += witness.differences(client, kernels, seen)
    if code != 0:
        lines.append(f"the program ended with {code}: {child.last_words()}")
    return Counted(client, kernels, own, seen, code, lines)


def _settled(daemon, pid, launches):
    """The client's counters once every record has been drained: those of all `launches`; where the program does not
    know how many, once nothing has come for a while."""
    end = time.monotonic() + _AGREE_WAIT_S
    client, kernels, before, since = None, [], None, 0.0
    while time.monotonic() < end:
        client = daemon.client(pid)
        if client is not None:
            kernels = daemon.kernels(client["id"])
            recorded = client["dropped"] + sum(k["launches"] for k in kernels if k["kind"] in ("kernel", "graph"))
            now = time.monotonic()
            if recorded != before:
                before, since = recorded, now
            if recorded == client["launches"] and (recorded == launches or now - since >= _REST_S):
                break
        time.sleep(0.05)
    return client, kernels
