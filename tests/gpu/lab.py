"""What the tests of tools/gpu_check share: where things are, a context on the simulated GPU."""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True
BUILD = pathlib.Path(os.environ.get("LULL_BUILD_DIR", ROOT / "build/dev"))

from gpu_check import mps  # noqa: E402
from gpu_check.context import Context  # noqa: E402
from gpu_check.results import Results  # noqa: E402


@contextlib.contextmanager
def context():
    out = pathlib.Path(tempfile.mkdtemp(prefix="lull-gpu-test-"))
    one = Context(ROOT, BUILD, out, True, True, Results(out, True))
    try:
        yield one
    finally:
        one.close()
        shutil.rmtree(out, ignore_errors=True)


@contextlib.contextmanager
def fake_mps():
    """The stand-in for MPS in front of PATH."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lull-fake-mps-"))
    (folder / "nvidia-cuda-mps-control").symlink_to(ROOT / "tests/gpu/fake_mps_control.py")
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}:{path}"
    try:
        yield
    finally:
        os.environ["PATH"] = path
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def context_with_fake_mps(**more):
    """A context for which the simulated GPU is a real one and the stand-in is NVIDIA's MPS. `more`: of the environment."""
    nobody = unittest.mock.patch.object(mps, "foreign", lambda: "")  # whatever else runs on this machine
    with context() as one, fake_mps(), nobody:
        simulated = one.env()
        one.sim, one._foreign_mps, one.slow_motion = False, "", 1
        plain = one.env
        kept = {k: v for k, v in simulated.items() if k.startswith(("SIMGPU_", "LD_LIBRARY_PATH"))}
        one.env = lambda **wanted: plain(**{**kept, **more, **wanted})
        yield one
