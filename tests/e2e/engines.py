"""What the tests of Docker's and Podman's containers have in common: an image, and two programs in two containers under one
lulld. Nothing is fetched."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tarfile

import lab

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/containers"
IMAGE = "lull-test"
WORKLOAD = "share/lull/workloads/chatty_inference.json"


def make_image(path):
    """A root of nothing but the C library and true(1)."""
    needed = {"/bin/true"}
    for program in ("/bin/true", lab.BIN / "lull-play"):
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        needed.update(re.findall(r"(/\S+) \(0x", said))
    with tarfile.open(path, "w", dereference=True) as image:
        for file in sorted(needed):
            image.add(os.path.realpath(file), file.lstrip("/"))
    return path


def two_programs(test, here, script, words=lambda *words: words, options="", environment=None, cwd=None):
    """`script` of the examples twice, by `words` (what is to be called for words of a command); the image is there."""
    # The folder with the socket and nothing else, and an installation that every user may read.
    here.folder.chmod(0o755)
    run = here.folder / "run"
    run.mkdir()
    here.socket = str(run / "lulld.sock")
    lull = here.folder / "lull"
    for part in ("bin/lull-play", "lib/lull/liblull.so", "lib/lull/sim/libcuda.so.1", WORKLOAD):
        (lull / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(lab.BUILD / part, lull / part)
    here.lulld()
    # It makes the device.
    code, _, err = here.run(lab.BIN / "lull-play", lab.BUILD / WORKLOAD, "--iterations", 1)
    test.assertEqual(code, 0, err)
    os.chmod(here.device, 0o666)

    def start(name, priority):
        more = f"--env LULL_REQUIRE_COORDINATOR=1 --env LD_LIBRARY_PATH={lull}/lib/lull/sim --env SIMGPU_DEVICE=/run/simgpu " \
               f"--volume {here.device}:/run/simgpu --volume {lull}:{lull}:ro {options}"
        told = {"PRIORITY": priority, "TASK": name, "PREFIX": str(lull), "FOLDER": str(run), "GPUS": "", "OPTIONS": more}
        child = subprocess.Popen(words(str(EXAMPLES / script), IMAGE, str(lull / "bin/lull-play"), str(lull / WORKLOAD), "--until-signal"),
                                 env={**(environment or os.environ), **told}, cwd=cwd, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        here.children.append(child)
        return child

    children = {name: start(name, priority) for name, priority in (("one", "normal"), ("two", "low"))}
    tasks = {}
    for name, child in children.items():
        def seen(name=name, child=child):
            if child.poll() is not None:
                raise AssertionError(f"{name} ended: {child.communicate()}")
            return next((c for c in here.status()["clients"] if c["task"] == name and c["launches"] > 100), None)
        tasks[name] = lab.until(seen, f"{name} launches")
    test.assertEqual({name: task["priority"] for name, task in tasks.items()}, {"one": 5, "two": 7})
    for name, task in tasks.items():
        test.assertEqual(task["namespace_pid"], 1)
        os.kill(task["pid"], signal.SIGTERM)
        out, err = children[name].communicate(timeout=lab.DEADLINE_S)
        test.assertEqual(children[name].returncode, 0, out + err)
    lab.until(lambda: not here.status()["clients"], "both are gone")
