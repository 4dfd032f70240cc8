"""Programs in Podman's containers under one lulld, as root and as an ordinary user: examples/containers/podman.sh. The image is
made of this machine's C library; nothing is fetched."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tarfile
import unittest

import lab

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples/containers/podman.sh"
WORKLOAD = "share/lull/workloads/chatty_inference.json"
USER = 65534

STORAGE = """[storage]
driver = "vfs"
graphroot = "{home}/store"
runroot = "{home}/run"
rootless_storage_path = "{home}/store"
[storage.options.vfs]
ignore_chown_errors = "true"
"""
# Nothing that a machine may refuse: no control groups, no network, no higher limits.
ENGINE = """[containers]
cgroups = "disabled"
netns = "none"
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
"""
# Where both versions of control groups are mounted, crun runs nothing: it sees the second only.
ONE_VERSION = """if [ -d /sys/fs/cgroup/unified ]; then umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; fi; exec "$@" """


class Podman:
    """Podman with a home of its own below `folder`."""

    def __init__(self, folder, user):
        self.home = folder / "podman"
        for part in ("run", "store"):
            (self.home / part).mkdir(parents=True)
        (self.home / "storage.conf").write_text(STORAGE.format(home=self.home))
        (self.home / "containers.conf").write_text(ENGINE)
        self.user = []
        if user is not None:
            self.user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
            for path in (self.home, *self.home.iterdir()):
                os.chown(path, user, user)
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.home / "run"),
                            "CONTAINERS_CONF": str(self.home / "containers.conf"), "CONTAINERS_STORAGE_CONF": str(self.home / "storage.conf")}

    def words(self, *words):
        outside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ONE_VERSION, "sh"] if os.geteuid() == 0 else []
        return [*outside, *self.user, *map(str, words)]

    def run(self, *words):
        return subprocess.run(self.words("podman", *words), env=self.environment, cwd=self.home, capture_output=True, text=True,
                              timeout=lab.DEADLINE_S, check=False)

    def why_not(self, image):
        """Why no container can be run here; empty where one can."""
        for words in (("import", "--quiet", image, "lull-test"), ("run", "--rm", "lull-test", "/bin/true")):
            done = self.run(*words)
            if done.returncode:
                return f"podman {words[0]}: {done.stderr.strip()[-200:]}"
        return ""


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


@unittest.skipUnless(shutil.which("podman"), "no podman here")
class Containers(unittest.TestCase):
    def with_user(self, user):
        here = lab.Lab().__enter__()
        self.addCleanup(here.__exit__)
        here.folder.chmod(0o755)
        run = here.folder / "run"  # the folder with the socket and nothing else
        run.mkdir()
        here.socket = str(run / "lulld.sock")
        podman = Podman(here.folder, user)
        if reason := podman.why_not(make_image(here.folder / "image.tar")):
            self.skipTest(reason)
        # An installation that this user may read.
        lull = here.folder / "lull"
        for part in ("bin/lull-play", "lib/lull/liblull.so", "lib/lull/sim/libcuda.so.1", WORKLOAD):
            (lull / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(lab.BUILD / part, lull / part)
        here.lulld()
        # It makes the device.
        code, _, err = here.run(lab.BIN / "lull-play", lab.BUILD / WORKLOAD, "--iterations", 1)
        self.assertEqual(code, 0, err)
        os.chmod(here.device, 0o666)

        def start(name, priority):
            options = f"--env LULL_REQUIRE_COORDINATOR=1 --env LD_LIBRARY_PATH={lull}/lib/lull/sim --env SIMGPU_DEVICE=/run/simgpu " \
                      f"--volume {here.device}:/run/simgpu --volume {lull}:{lull}:ro"
            environment = {**podman.environment, "PRIORITY": priority, "TASK": name, "PREFIX": str(lull), "FOLDER": str(run), "GPUS": "",
                           "OPTIONS": options}
            child = subprocess.Popen(podman.words(SCRIPT, "lull-test", lull / "bin/lull-play", lull / WORKLOAD, "--until-signal"), env=environment,
                                     cwd=podman.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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
        self.assertEqual({name: task["priority"] for name, task in tasks.items()}, {"one": 5, "two": 7})
        for name, task in tasks.items():
            self.assertEqual(task["namespace_pid"], 1)
            os.kill(task["pid"], signal.SIGTERM)
            out, err = children[name].communicate(timeout=lab.DEADLINE_S)
            self.assertEqual(children[name].returncode, 0, out + err)
        lab.until(lambda: not here.status()["clients"], "both are gone")

    def test_two_containers_share_a_gpu(self):
        self.with_user(None)

    @unittest.skipUnless(os.geteuid() == 0, "playing another user needs root")
    def test_an_ordinary_users_containers_take_roots_daemon(self):
        self.with_user(USER)


if __name__ == "__main__":
    unittest.main()
