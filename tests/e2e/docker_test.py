"""Programs in Docker's containers under one lulld: examples/containers/docker.sh, with a dockerd of the test's own, where Docker is
installed. Its containers have no network and no control groups' limits; nothing is fetched."""

import os
import shutil
import subprocess
import unittest

import engines
import lab

# Where both versions of control groups are mounted, it is given the second only.
ONE_VERSION = """if [ -d /sys/fs/cgroup/unified ]; then umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; fi; exec "$@" """


@unittest.skipUnless(shutil.which("dockerd") and shutil.which("docker"), "no docker here")
@unittest.skipUnless(os.geteuid() == 0, "dockerd needs root")
class Containers(unittest.TestCase):
    def dockerd(self, here):
        """Started below the lab's folder; it and all its containers are one pid namespace, which ends with the test however that
        ends."""
        at = here.folder / "docker"
        at.mkdir()
        group = f"lull-docker-{os.getpid()}"
        self.addCleanup(lambda: [os.rmdir(path) for path in (f"/sys/fs/cgroup/{group}", f"/sys/fs/cgroup/unified/{group}") if os.path.isdir(path)])
        with (at / "log").open("w") as log:
            daemon = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
                 "sh", "-c", ONE_VERSION, "sh", "dockerd", "--host", f"unix://{at}/docker.sock", "--data-root", at / "data", "--exec-root", at / "run",
                 "--pidfile", at / "pid", "--cgroup-parent", f"/{group}", "--storage-driver", "vfs", "--iptables=false", "--ip6tables=false", "--bridge=none"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        here.children.append(daemon)
        environment = {**os.environ, "DOCKER_HOST": f"unix://{at}/docker.sock"}

        def docker(*words):
            return subprocess.run(["docker", *map(str, words)], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=lab.DEADLINE_S, check=False)
        lab.until(lambda: daemon.poll() is not None or docker("version").returncode == 0, "dockerd answers", step_s=0.2)
        image = engines.make_image(here.folder / "image.tar")
        for words in (("import", image, engines.IMAGE), ("run", "--rm", "--network", "none", engines.IMAGE, "/bin/true")):
            done = docker(*words)
            if done.returncode:
                self.skipTest(f"docker {words[0]}: {done.stderr.strip()[-200:]}; dockerd: {(at / 'log').read_text()[-400:]}")
        return environment

    def test_two_containers_share_a_gpu(self):
        with lab.Lab() as here:
            engines.two_programs(self, here, "docker.sh", options="--network none", environment=self.dockerd(here))


if __name__ == "__main__":
    unittest.main()
