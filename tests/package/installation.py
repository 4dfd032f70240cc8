"""What the tests of packages share: packages made from the build, and clean roots to install them in."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("LULL_BUILD_DIR", ROOT / "build/dev"))
DEADLINE_S = 300
NOBODY = 65534
# The demo's pair, short: real processes on the simulated GPU.
DEMO = ["compare", "--sim", "--high", "chatty_inference", "--low", "dense_inference", "--policy", "guarded", "--iterations", "5",
        "--warmup", "1", "--slow-motion", "4"]


def run(*words, code=0, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=DEADLINE_S, check=False, **more)
    assert code is None or done.returncode == code, \
        f"{' '.join(map(str, words))}: exit {done.returncode}, wanted {code}\n{done.stdout}\n{done.stderr}"
    return done


@contextlib.contextmanager
def scratch():
    """A folder that ordinary users can look into."""
    with tempfile.TemporaryDirectory(prefix="lull-package-") as folder:
        os.chmod(folder, 0o755)
        yield pathlib.Path(folder)


def pack(generator, folder, *more):
    """The packages that cpack makes of the build, by file name."""
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", generator, "-B", folder, *more)
    shutil.rmtree(folder / "_CPack_Packages", ignore_errors=True)
    return {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}


def clean_environment(home, **more):
    """As a login has it: nothing of this build."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home), "LANG": "C.UTF-8", **more}


def as_nobody():
    """Words in front of a command that make it an ordinary user's; none where this is one's already."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


class CleanRoot:
    """This machine's root with nothing of lull in it: an overlay, whose upper folder is what was changed.

    The checkout, /tmp, /run and home folders are empty there. Needs mount namespaces and overlays: a reason to
    skip is what `why_not` says.
    """

    SETUP = """set -e
mount -t tmpfs none "$1"; mkdir "$1/changed" "$1/work" "$1/all"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changed,workdir=$1/work" "$1/all"
mount --rbind /dev "$1/all/dev"; mount -t proc proc "$1/all/proc"; mount -t tmpfs -o mode=755 none "$1/all/run"
mount -t tmpfs -o mode=1777 none "$1/all/tmp"
for folder in $2 /root /home /usr/local; do if [ -d "$1/all$folder" ]; then mount -t tmpfs none "$1/all$folder"; fi; done
mkdir "$1/all/run/packages"; cp -r "$3"/. "$1/all/run/packages"
echo ready; exec sleep infinity"""

    def __init__(self, packages):
        self._folder = tempfile.mkdtemp(prefix="lull-root-")
        self._holder = subprocess.Popen(["unshare", "--mount", "sh", "-c", self.SETUP, "sh", self._folder, str(ROOT), str(packages)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.why_not = "" if self._holder.stdout.readline() == "ready\n" else \
            "no mount namespace or overlay here: " + self._holder.communicate()[1].strip()[-300:]

    def words(self, *words, user=False):
        inside = ["nsenter", f"--target={self._holder.pid}", "--mount", "chroot", f"{self._folder}/all", *(as_nobody() if user else [])]
        return [*inside, *map(str, words)]

    def run(self, *words, user=False, code=0, **more):
        return run(*self.words(*words, user=user), code=code, env=clean_environment("/tmp", **more))

    def start(self, *words, user=False, **more):
        return subprocess.Popen(self.words(*words, user=user), env=clean_environment("/tmp", **more), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def changed(self):
        """Paths, below the root, of files that are not as on this machine."""
        listed = run("nsenter", f"--target={self._holder.pid}", "--mount", "sh", "-c", f"cd {self._folder}/changed && find . ! -type d")
        return {line[1:] for line in listed.stdout.splitlines()}

    def left_over(self):
        """Files and users that are still called after lull."""
        places = ("/etc", "/usr", "/opt", "/var", "/run", "/tmp")
        found = self.run("find", *places, "-name", "*lull*", "-not", "-path", "/run/packages/*").stdout
        return found + self.run("grep", "lull", "/etc/passwd", "/etc/group", code=None).stdout

    def close(self):
        self._holder.kill()
        self._holder.communicate()
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)


def until(true, what):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if value := true():
            return value
        time.sleep(0.02)
    raise AssertionError(f"never {what}")


def end(process):
    """Ends a process of ours; what it said."""
    process.terminate()
    try:
        return process.communicate(timeout=DEADLINE_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


sys.path.insert(0, str(ROOT / "tools"))
