"""Programs in Podman's containers under one lulld, as root and as an ordinary user: examples/containers/podman.sh. The image is
made of this machine's C library; nothing is fetched."""

import os
import shutil
import subprocess
import unittest

import engines
import lab

USER = 65534
# Of a container, whatever becomes of the test: its monitor, which outlives a killed test, ends it then.
LIFETIME_S = 900

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
        for words in (("import", "--quiet", image, engines.IMAGE), ("run", "--rm", engines.IMAGE, "/bin/true")):
            done = self.run(*words)
            if done.returncode:
                return f"podman {words[0]}: {done.stderr.strip()[-200:]}"
        return ""


@unittest.skipUnless(shutil.which("podman"), "no podman here")
class Containers(unittest.TestCase):
    def with_user(self, user):
        with lab.Lab() as here:
            here.folder.chmod(0o755)
            podman = Podman(here.folder, user)
            if reason := podman.why_not(engines.make_image(here.folder / "image.tar")):
                self.skipTest(reason)
            engines.two_programs(self, here, "podman.sh", podman.words, f"--timeout={LIFETIME_S}", podman.environment, podman.home)

    def test_two_containers_share_a_gpu(self):
        self.with_user(None)

    @unittest.skipUnless(os.geteuid() == 0, "playing another user needs root")
    def test_an_ordinary_users_containers_take_roots_daemon(self):
        self.with_user(USER)


if __name__ == "__main__":
    unittest.main()
