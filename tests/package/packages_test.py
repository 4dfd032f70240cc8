"""The .deb, the .rpm and the tarball: installed into a clean root, used by an ordinary user, purged."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from installation import BUILD, DEMO, ROOT, CleanRoot, as_nobody, clean_environment, end, pack, run, scratch, until
from gpu_check import elf  # installation.py adds its folder

# Written by others at any installation: dpkg's own lists, caches, and the files of users, whose text is looked at.
OTHERS = re.compile(r"/var/lib/dpkg/.*|/var/log/(dpkg|alternatives)\.log|/var/cache/.*|/etc/ld\.so\.cache|"
                    r"/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?|/etc/\.pwd\.lock|/var/log/(faillog|lastlog)|"
                    r"/var/lib/systemd/deb-systemd-helper-.*|/etc/systemd/system/multi-user\.target\.wants")


GLIBCS_OWN = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def elf_files(folder):
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file() and not path.is_symlink():
            with contextlib.suppress(elf.NotElf):
                yield elf.Elf(path)


def newest_glibc(folder):
    return max(elf.newest(set().union(*file.versions.values()), "GLIBC") for file in elf_files(folder))


def libraries(folder):
    return set().union(*(file.needed for file in elf_files(folder)))


def runs_the_demo(test, root, lull):
    test.assertRegex(root.run(lull, "--version", user=True).stdout, r"^lull \d")
    test.assertIn("guarded", root.run(lull, "simulate", "--iterations", "20", "--policy", "guarded", user=True).stdout)
    test.assertRegex(root.run(lull, *DEMO, user=True).stdout, r"(?m)^guarded +chatty_inference +high +[1-9]")


@unittest.skipUnless(shutil.which("dpkg-deb"), "no dpkg here")
class Debian(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._scratch = scratch()
        cls.folder = cls._scratch.__enter__()
        cls.addClassCleanup(cls._scratch.__exit__, None, None, None)
        # As shipped, but packed quickly.
        files = pack("DEB", cls.folder, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip")
        cls.packages = {name.split("_")[0]: path for name, path in files.items()}

    def field(self, package, name):
        return run("dpkg-deb", "--field", self.packages[package], name).stdout.strip()

    def test_there_are_two_packages(self):
        self.assertEqual(set(self.packages), {"lull", "lull-sim"})

    def test_a_package_needs_the_c_library_that_its_files_ask_for_and_nothing_that_is_not_said(self):
        version = self.field("lull", "Version")
        for package, others in (("lull", {"passwd"}), ("lull-sim", {f"lull (= {version})"})):
            with self.subTest(package):
                tree = self.folder / package
                run("dpkg-deb", "--extract", self.packages[package], tree)
                needs = set(self.field(package, "Depends").split(", ")) - others
                self.assertEqual(len(needs), 1, needs)
                least = re.fullmatch(r"libc6 \(>= (\d+)\.(\d+)\)", needs.pop())
                self.assertLessEqual(newest_glibc(tree), tuple(map(int, least.groups())))
                self.assertLessEqual(libraries(tree), GLIBCS_OWN)
                if package == "lull":
                    self.assertLessEqual(newest_glibc(tree / "usr/lib/lull"), (2, 17))

    @unittest.skipUnless(shutil.which("lintian"), "no lintian here")
    def test_lintian_finds_nothing(self):
        said = run("lintian", "--fail-on", "error,warning", *self.packages.values(), code=None)
        self.assertEqual(said.returncode, 0, said.stdout)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here")
    def test_the_unit_is_what_systemd_understands(self):
        tree = self.folder / "unit"
        run("dpkg-deb", "--extract", self.packages["lull"], tree)
        unit = tree / "usr/lib/systemd/system/lulld.service"
        text = unit.read_text()
        self.assertIn("ExecStart=/usr/bin/lulld --socket /run/lull/lulld.sock --config /etc/lull/lulld.json\n", text)
        # The program is not installed here: its place in the folder stands for it.
        unit.write_text(text.replace("/usr/bin/lulld", str(tree / "usr/bin/lulld")))
        said = run("systemd-analyze", "verify", "--man=no", unit, code=None)
        ours = [line for line in said.stderr.splitlines() if "lulld" in line]
        self.assertEqual(ours, [])

    def test_installed_used_by_an_ordinary_user_and_purged(self):
        root = CleanRoot(self.folder)
        self.addCleanup(root.close)
        if root.why_not:
            self.skipTest(root.why_not)
        before = root.changed()
        packages = [f"/run/packages/{path.name}" for path in self.packages.values()]
        root.run("dpkg", "--install", *packages)
        self.assertRegex(root.run("getent", "passwd", "lull").stdout, r"^lull:x:\d+:\d+:")
        self.assertIn("/usr/bin/lull", root.changed())

        with self.subTest("an ordinary user runs the demo's pair"):
            runs_the_demo(self, root, "lull")

        with self.subTest("the service's user serves another user's programs"):
            self.serve(root)

        with self.subTest("scripts may run again, and a changed configuration stays"):
            root.run("sh", "-c", "echo '{\"policy\": \"priority\"}' > /etc/lull/lulld.json")
            root.run("dpkg", "--install", "--force-confold", *packages)
            root.run("/var/lib/dpkg/info/lull.postinst", "configure")
            self.assertIn("priority", root.run("cat", "/etc/lull/lulld.json").stdout)

        root.run("mkdir", "-p", "/var/lib/lull/profiles", "/var/log/lull")
        root.run("dpkg", "--purge", "lull-sim", "lull")
        left = {path for path in root.changed() - before if not OTHERS.fullmatch(path)}
        # An overlay keeps a mark for what was there before it, and nothing of lull was.
        self.assertEqual(left, set())
        self.assertEqual(root.left_over(), "")

    def serve(self, root):
        """As the unit starts it: the user lull, a folder of its own in /run, the shipped configuration."""
        root.run("install", "-d", "-o", "lull", "-g", "lull", "-m", "755", "/run/lull")
        daemon = root.start("setpriv", "--reuid=lull", "--regid=lull", "--clear-groups", "--no-new-privs", "lulld", "--socket",
                            "/run/lull/lulld.sock", "--config", "/etc/lull/lulld.json", "--sim", "/tmp/gpu")
        try:
            until(lambda: daemon.poll() is not None or root.run("lull", "status", user=True, code=None).returncode == 0, "lulld answers")
            self.assertIsNone(daemon.poll())
            root.run("lull", "run", "--sim", "--require-coordinator", "--priority", "high", "--slow-motion", "1", "lull-play",
                     "/usr/share/lull/workloads/chatty_inference.json", "--iterations", "3", user=True, SIMGPU_DEVICE="/tmp/gpu")
            checks = root.run("lull", "doctor", "--sim", user=True, SIMGPU_DEVICE="/tmp/gpu").stdout
            self.assertIn("answers at /run/lull/lulld.sock", checks)
        finally:
            said = end(daemon)
        self.assertEqual(daemon.returncode, 0, said)


class Tarball(unittest.TestCase):
    def test_it_runs_wherever_it_is_unpacked(self):
        with scratch() as folder:
            (file,) = pack("TGZ", folder).values()
            run("tar", "-xzf", file, "-C", folder)
            (tree,) = (path for path in folder.iterdir() if path.is_dir())
            moved = tree.rename(folder / "elsewhere")
            environment = clean_environment(folder, TMPDIR="/tmp")
            table = run(*as_nobody(), moved / "bin/lull", *DEMO, env=environment).stdout
            self.assertRegex(table, r"(?m)^guarded +chatty_inference +high +[1-9]")
            unit = (moved / "lib/systemd/system/lulld.service").read_text()
            self.assertIn("ExecStart=/usr/local/bin/lulld --socket /run/lull/lulld.sock --config /usr/local/etc/lull/lulld.json\n", unit)

    def test_in_a_clean_root_it_is_used_by_an_ordinary_user_and_leaves_nothing(self):
        with scratch() as folder:
            (file,) = pack("TGZ", folder).values()
            root = CleanRoot(folder)
            self.addCleanup(root.close)
            if root.why_not:
                self.skipTest(root.why_not)
            root.run("mkdir", "/opt/lull")
            root.run("tar", "-xzf", f"/run/packages/{file.name}", "-C", "/opt/lull", "--strip-components=1")
            runs_the_demo(self, root, "/opt/lull/bin/lull")
            root.run("rm", "-r", "/opt/lull")
            self.assertEqual(root.changed(), set())
            self.assertEqual(root.left_over(), "")


class FromTheBuild(unittest.TestCase):
    """cmake --install, as docs/install.md says, and each component by its name."""

    def install(self, folder, *component):
        run("cmake", "--install", BUILD, *component, "--prefix", "/usr/local", env={**os.environ, "DESTDIR": str(folder)})
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}

    def test_in_a_clean_root_it_is_used_by_an_ordinary_user_and_leaves_nothing(self):
        with scratch() as folder:
            files = self.install(folder / "all")
            self.assertTrue(all(file.startswith("usr/local/") for file in files), files)
            root = CleanRoot(folder)
            self.addCleanup(root.close)
            if root.why_not:
                self.skipTest(root.why_not)
            root.run("cp", "-r", "/run/packages/all/.", "/")
            runs_the_demo(self, root, "/usr/local/bin/lull")
            root.run("sh", "-c", "cd /run/packages/all && find . ! -type d | (cd /; xargs rm)")
            self.assertEqual({path for path in root.changed() if not path.startswith("/usr/local/")}, set())
            self.assertEqual(root.run("find", "/usr/local", "!", "-type", "d").stdout, "")

    def test_each_component_by_its_name_runs_in_a_clean_root(self):
        with scratch() as folder:
            parts = {name: self.install(folder / name, "--component", name) for name in ("lull", "sim", "bench", "check")}
            self.assertEqual(sum(map(len, parts.values())), len(set().union(*parts.values())), "a file is in two components")
            root = CleanRoot(folder)
            self.addCleanup(root.close)
            if root.why_not:
                self.skipTest(root.why_not)
            for name in parts:
                root.run("cp", "-r", f"/run/packages/{name}/.", "/")
            for program in ("lull", "lulld", "lull-play", "lull-bench"):
                root.run(f"/usr/local/bin/{program}", "--help", user=True)
            self.assertIn("usr/local/bin/lull-device-probe", parts["check"])
            self.assertIn("launches recorded", root.run("lull", "trace", "record", "--sim", "-o", "/tmp/t.lull", "--", "/usr/local/bin/lull-play",
                                             "/usr/local/share/lull/workloads/chatty_inference.json", "--iterations", "1", user=True).stderr)


@unittest.skipUnless(shutil.which("rpmbuild"), "no rpmbuild here")
class Rpm(unittest.TestCase):
    def test_it_installs_the_same_files_as_the_deb(self):
        with scratch() as folder:
            files = pack("RPM", folder)
            (lull,) = (path for name, path in files.items() if not name.startswith("lull-sim"))
            (sim,) = (path for name, path in files.items() if name.startswith("lull-sim"))
            listed = set(run("rpm", "-qpl", lull).stdout.splitlines())
            self.assertLessEqual({"/usr/bin/lull", "/usr/bin/lulld", "/usr/lib/lull/liblull.so", "/etc/lull/lulld.json",
                                  "/usr/lib/systemd/system/lulld.service"}, listed)
            self.assertFalse({"/usr", "/usr/bin", "/usr/share/man/man1", "/usr/lib/systemd/system"} & listed, "others' folders")
            self.assertEqual(run("rpm", "-qpc", lull).stdout, "/etc/lull/lulld.json\n")
            self.assertNotIn("libcuda", run("rpm", "-qp", "--provides", sim).stdout)
            self.assertIn("shadow-utils", run("rpm", "-qp", "--requires", lull).stdout)

    @unittest.skipUnless(shutil.which("rpm"), "no rpm here")
    def test_in_a_clean_root_it_is_installed_used_by_an_ordinary_user_and_erased(self):
        with scratch() as folder:
            files = pack("RPM", folder)
            root = CleanRoot(folder)
            self.addCleanup(root.close)
            if root.why_not:
                self.skipTest(root.why_not)
            # What this system has is in no database of rpm's: its own needs are looked at above.
            force = ["--nodeps", "--dbpath", "/run/rpm"] + (["--force-debian"] if shutil.which("dpkg") else [])
            root.run("rpm", "--install", *force, *(f"/run/packages/{name}" for name in files))
            self.assertRegex(root.run("getent", "passwd", "lull").stdout, r"^lull:x:\d+:\d+:")
            runs_the_demo(self, root, "lull")
            root.run("mkdir", "-p", "/var/lib/lull/profiles", "/var/log/lull")
            root.run("rpm", "--erase", *force, "lull-sim", "lull")
            self.assertEqual({path for path in root.changed() if not OTHERS.fullmatch(path)}, set())
            self.assertEqual(root.left_over(), "")


if __name__ == "__main__":
    unittest.main()
