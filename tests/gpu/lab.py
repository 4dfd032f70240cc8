"""What the tests of tools/gpu_check share: where things are, a context on the simulated GPU."""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True
BUILD = pathlib.Path(os.environ.get("LULL_BUILD_DIR", ROOT / "build/dev"))

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
