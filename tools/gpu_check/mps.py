"""NVIDIA's Multi-Process Service, started for one step with pipes and logs of its own."""

import contextlib
import shutil

from gpu_check.verdict import Skipped

_START_S = 20
_END_S = 20


@contextlib.contextmanager
def service(context):
    """The environment that makes programs its clients. Skipped where it cannot be started."""
    context.needs_gpu("MPS is the real driver's")
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        raise Skipped("no nvidia-cuda-mps-control on this machine")
    folder = context.scratch / "mps"
    folder.mkdir(exist_ok=True)
    more = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    # In the foreground, so that it is ours to end.
    daemon = context.children.start([control, "-f"], context.env(**more), "mps")
    try:
        if not daemon.wait_for(lambda: (folder / "control").exists(), context.timeout(_START_S)):
            raise Skipped("MPS cannot be started: " + daemon.last_words())
        # A first client brings the server up; where that fails, MPS does not work here.
        probe = context.children.run([context.program(context.bin, "lull-device-probe"), "facts"], context.env(**more), 60)
        log = folder / "server.log"
        if not probe.good or '"failed"' in probe.out or '"skipped"' in probe.out:
            last = log.read_text(errors="replace").splitlines()[-1:] if log.exists() else []
            raise Skipped("MPS does not serve here: " + (probe.out.strip() or probe.why())[:200] + " ".join(last)[:200])
        yield more
    finally:
        quit_ = context.children.start([control], context.env(**more), "mps-quit")
        quit_.say("quit")
        quit_.process.stdin.close()
        quit_.wait(_END_S)
        quit_.end()
        daemon.wait(_END_S)
        daemon.end()
