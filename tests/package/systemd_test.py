"""lulld.service under a real systemd: process 1 of namespaces of its own, in a clean root into which the .deb is installed.

Nothing outside is asked of or told to any service manager. What is needed, root, overlays, a cgroup2 hierarchy in
which a folder may be made, systemd 240 or newer, is looked for first.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import unittest

from installation import NOBODY, ROOT, clean_environment, pack, run, scratch, until

SYSTEMD = next((path for path in ("/lib/systemd/systemd", "/usr/lib/systemd/systemd") if os.access(path, os.X_OK)), None)
# Of the distribution's units: what would reach beyond the namespaces, or waits for hardware.
MASKED = ("systemd-sysctl.service", "systemd-modules-load.service", "systemd-udevd.service", "systemd-udev-trigger.service",
          "systemd-udevd-control.socket", "systemd-udevd-kernel.socket", "systemd-random-seed.service", "systemd-binfmt.service",
          "systemd-remount-fs.service", "systemd-firstboot.service", "systemd-machine-id-commit.service", "kmod-static-nodes.service",
          "systemd-hwdb-update.service", "systemd-update-utmp.service", "proc-sys-fs-binfmt_misc.automount", "systemd-pcrphase.service",
          "systemd-pcrphase-sysinit.service", "sys-fs-fuse-connections.mount", "sys-kernel-config.mount", "sys-kernel-debug.mount",
          "sys-kernel-tracing.mount", "dev-hugepages.mount", "dev-mqueue.mount")
BOOT = """set -e
echo $$ > "$4/cgroup.procs"
exec unshare --mount --propagation private --pid --cgroup --ipc --uts --fork --kill-child sh -euc '
mount -t tmpfs none "$1"; mkdir "$1/changed" "$1/work" "$1/all"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changed,workdir=$1/work" "$1/all"
cd "$1/all"
mount -t proc proc proc; mount --bind proc/sys proc/sys; mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro none sys; mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs -o mode=755 none run; mount -t tmpfs -o mode=1777 none tmp; mount -t tmpfs -o mode=755 none dev
for name in null zero full random urandom tty; do : > dev/$name; mount --bind /dev/$name dev/$name; done
mkdir dev/shm dev/pts; mount -t tmpfs -o mode=1777 none dev/shm; mount -t devpts -o newinstance,ptmxmode=0666 none dev/pts
ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd
mkdir run/packages; cp -r "$3"/. run/packages
for folder in $2 root home usr/local; do if [ -d "./$folder" ]; then mount -t tmpfs none "./$folder"; fi; done
rm -rf etc/systemd/system usr/sbin/policy-rc.d; mkdir -p etc/systemd/system
for unit in $5; do ln -s /dev/null etc/systemd/system/$unit; done
printf "[Unit]\\nRequires=sysinit.target\\nAfter=sysinit.target\\n" > etc/systemd/system/test.target
mkdir old; pivot_root . old; cd /; umount -l old; rmdir old
hostname lull-test
exec env -i container=lull PATH=/usr/sbin:/usr/bin:/sbin:/bin "$6" --unit=test.target --log-target=console --show-status=no
' sh "$1" "$2" "$3" "" "$5" "$6"
"""


def cgroup2():
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2" and "rw" in options.split(","):
            return pathlib.Path(place)
    return None


class Machine:
    """A systemd of its own. `why_not` says why there is none."""

    def __init__(self, packages):
        self.why_not, self._boot, self._cgroup = "", None, None
        parent = cgroup2()
        if os.geteuid() != 0 or SYSTEMD is None or parent is None:
            self.why_not = "needs root, systemd and a writable cgroup2 hierarchy"
            return
        self._folder = pathlib.Path(packages).parent / "machine"
        self._folder.mkdir()
        self._cgroup = parent / f"lull-test-{os.getpid()}"
        try:
            self._cgroup.mkdir()
        except OSError as error:
            self.why_not = f"no cgroup of its own: {error}"
            return
        self._log = open(pathlib.Path(packages).parent / "console", "w+", encoding="utf-8")  # pylint: disable=consider-using-with
        self._boot = subprocess.Popen(["sh", "-c", BOOT, "sh", self._folder, str(ROOT), packages, self._cgroup, " ".join(MASKED), SYSTEMD],
                                      stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT)
        try:
            until(lambda: self._boot.poll() is not None or self._is_up(), "systemd is up")
        except AssertionError as error:
            self.why_not = f"{error}: {self.console()}"
        if self._boot.poll() is not None:
            self.why_not = f"systemd does not start in namespaces here: {self.console()}"

    def console(self):
        self._log.seek(0)
        return self._log.read()[-600:]

    def _first(self):
        children = pathlib.Path(f"/proc/{self._boot.pid}/task/{self._boot.pid}/children").read_text().split()
        return children[0] if children else None

    def _is_up(self):
        if self._first() is None:
            return False
        return self.run("systemctl", "is-system-running", code=None).stdout.strip() in ("running", "degraded")

    def words(self, *words, user=None):
        who = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        return ["nsenter", f"--target={self._first()}", "--mount", "--pid", "--ipc", "--uts", "--cgroup", "--root", "--wd", *who, *map(str, words)]

    def run(self, *words, user=None, code=0, **more):
        return run(*self.words(*words, user=user), code=code, env=clean_environment("/tmp", **more))

    def start(self, *words, user=None, **more):
        return subprocess.Popen(self.words(*words, user=user), env=clean_environment("/tmp", **more), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def show(self, what, unit="lulld.service"):
        return self.run("systemctl", "show", "--value", "--property", what, unit).stdout.strip()

    def close(self):
        if self._boot is not None:
            self._boot.kill()
            self._boot.wait()
            self._log.close()
        if self._cgroup is not None and self._cgroup.is_dir():
            def gone():
                for folder, _, _ in os.walk(self._cgroup, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(folder)
                return not self._cgroup.exists()
            until(gone, "its processes are gone")


@unittest.skipUnless(shutil.which("dpkg-deb"), "no dpkg here")
class Service(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._scratch = scratch()
        folder = cls._scratch.__enter__()
        cls.addClassCleanup(cls._scratch.__exit__, None, None, None)
        packages = folder / "packages"
        packages.mkdir()
        cls.names = list(pack("DEB", packages, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip"))
        cls.machine = Machine(packages)
        cls.addClassCleanup(cls.machine.close)
        if cls.machine.why_not:
            raise unittest.SkipTest(cls.machine.why_not)

    def write(self, path, text):
        self.machine.run("sh", "-c", 'mkdir -p "$(dirname "$1")"; printf %s "$2" > "$1"', "sh", path, text)

    def config(self, **changes):
        shipped = json.loads((ROOT / "tools/setup/lulld.json").read_text())
        self.write("/etc/lull/lulld.json", json.dumps(shipped | changes))

    def status(self):
        done = self.machine.run("lull", "status", "--json", code=None)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def task(self, name):
        status = self.status()
        return status and next((client for client in status["clients"] if client["task"] == name), None)

    def play(self, name, priority):
        child = self.machine.start("lull", "run", "--sim", "--name", name, "--priority", priority, "--", "lull-play",
                                   "/usr/share/lull/workloads/chatty_inference.json", "--until-signal", user=NOBODY, SIMGPU_DEVICE="/dev/shm/gpu")
        until(lambda: child.poll() is not None or self.task(name), f"{name} is attached")
        self.assertIsNone(child.poll(), child.stdout.read() if child.poll() is not None else "")
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)  # the program itself ends with its machine at the latest

    def kill(self, name):
        self.machine.run("kill", "-KILL", self.task(name)["pid"])

    def comes_back(self, name):
        """The task is with the new daemon and launches there."""
        first = until(lambda: self.task(name), f"{name} is back")["launches"]
        until(lambda: (task := self.task(name)) and task["launches"] > first, f"{name} goes on")

    def another_than(self, pid):
        until(lambda: self.machine.show("SubState") == "running" and self.machine.show("MainPID") not in (pid, "0"), "systemd starts it anew")
        until(self.status, "it answers")

    def test_the_service_from_its_installation_to_its_purge(self):
        machine = self.machine
        machine.run("dpkg", "--install", *(f"/run/packages/{name}" for name in self.names))

        with self.subTest("the installation starts it, as its own user"):
            self.assertEqual((machine.show("ActiveState"), machine.show("SubState"), machine.show("UnitFileState")),
                             ("active", "running", "enabled"))
            owner = machine.run("stat", "--format=%U %a", "/run/lull").stdout.split()
            self.assertEqual(owner, ["lull", "755"])
            self.assertEqual(machine.run("stat", "--format=%U %a", "/run/lull/lulld.sock").stdout.split(), ["lull", "666"])
            self.assertEqual(machine.run("stat", "--format=%U %a", "/var/lib/lull").stdout.split(), ["lull", "700"])
            self.assertEqual(machine.run("lull", "policy", user=NOBODY).stdout.split()[0], "guarded")

        # From here on with a simulated GPU, and a watchdog of a second in place of half a minute.
        kept = {"profiles": "/var/lib/lull/profiles"}  # by default of real GPUs alone
        self.config(**kept)
        self.write("/etc/systemd/system/lulld.service.d/test.conf",
                   "[Unit]\nStartLimitIntervalSec=0\n[Service]\nWatchdogSec=1\nExecStart=\n"
                   "ExecStart=/usr/bin/lulld --socket /run/lull/lulld.sock --config /etc/lull/lulld.json --sim /dev/shm/gpu\n")
        machine.run("lull", "run", "--sim", "--", "lull-play", "/usr/share/lull/workloads/chatty_inference.json", "--iterations", "1",
                    user=NOBODY, SIMGPU_DEVICE="/dev/shm/gpu")
        machine.run("chmod", "644", "/dev/shm/gpu")  # the service may know its clock
        machine.run("systemctl", "daemon-reload")
        place = machine.run("stat", "--format=%i", "/run/lull").stdout
        machine.run("systemctl", "restart", "lulld")
        until(self.status, "it answers")
        self.assertTrue(self.status()["simulated"])
        # A container has this folder mounted: it is the same one after a restart.
        self.assertEqual(machine.run("stat", "--format=%i", "/run/lull").stdout, place)

        self.play("high", "high")
        with self.subTest("a reload changes the policy, and a user's program is scheduled by it"):
            self.config(policy="exclusive", **kept)
            main = machine.show("MainPID")
            machine.run("systemctl", "reload", "lulld")
            until(lambda: machine.run("lull", "policy").stdout.split()[0] == "exclusive", "the new policy")
            self.assertEqual(machine.show("MainPID"), main)
            self.play("low", "low")
            until(lambda: (task := self.task("low")) and task["held"], "the less important one is held")
            self.kill("high")
            until(lambda: (task := self.task("low")) and task["launches"] > 100, "it goes on when the other has left")

        with self.subTest("a killed daemon is started anew, and the program comes back to it"):
            main = machine.show("MainPID")
            machine.run("kill", "-KILL", main)
            self.another_than(main)
            self.assertEqual(machine.show("NRestarts"), "1")
            self.comes_back("low")

        with self.subTest("a daemon that hangs is ended by the watchdog and started anew"):
            main = machine.show("MainPID")
            machine.run("kill", "-STOP", main)
            self.another_than(main)
            self.assertEqual(machine.show("NRestarts"), "2")
            self.comes_back("low")

        with self.subTest("the socket's rights are the configuration's"):
            self.config(socket={"mode": "0660", "group": "games"}, **kept)
            main = machine.show("MainPID")
            machine.run("systemctl", "reload", "lulld")
            until(lambda: machine.run("stat", "--format=%G %a", "/run/lull/lulld.sock").stdout.split() == ["games", "660"], "the new rights")
            self.assertEqual(machine.show("MainPID"), main)
            self.assertIn("no permission", machine.run("lull", "status", user=NOBODY, code=1).stderr)
            group = machine.run("getent", "group", "games").stdout.split(":")[2]
            machine.run("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", f"--groups={group}", "lull", "status")

        self.kill("low")
        with self.subTest("it stops at once"):
            until(lambda: self.task("low") is None, "the program is gone")
            machine.run("systemctl", "stop", "lulld")
            self.assertEqual((machine.show("ActiveState"), machine.show("Result")), ("inactive", "success"))
            self.assertEqual(machine.run("find", "/run/lull", "-name", "lulld.sock*").stdout, "")
            self.assertTrue(machine.run("ls", "/var/lib/lull/profiles").stdout)

        machine.run("systemctl", "start", "lulld")
        machine.run("rm", "-r", "/etc/systemd/system/lulld.service.d")
        machine.run("dpkg", "--purge", "lull-sim", "lull")
        self.assertEqual(machine.show("LoadState"), "not-found")
        self.assertEqual(machine.run("find", "/etc", "/usr", "/var", "/run", "-name", "*lull*", "-not", "-path", "/run/packages/*").stdout, "")


if __name__ == "__main__":
    unittest.main()
