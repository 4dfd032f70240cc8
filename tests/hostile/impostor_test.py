"""Nobody but root, oneself and the service user coordinates a program, and bad memory is not mapped."""

import os
import pathlib
import shutil
import stat
import subprocess
import time
import unittest

from players import SERVICE, STRANGER, VICTIM, Stage, lab, needs_root


class BadMemory(Stage):
    def test_memory_that_could_fault_is_not_mapped_and_the_program_runs(self):
        for memory in ("unsealed", "sparse", "short", "file"):
            with self.subTest(memory):
                socket = self.folder / memory
                impostor = self.impostor(socket, memory)
                probe = self.probe(LULL_SOCKET=str(socket))
                self.assertTrue(impostor.line().startswith("hello"))
                self.assertEqual(impostor.ask("shrink"), "done")
                self.assertEqual(probe.ask("launch k 1 5 1"), "0")
                code, errors = probe.end()
                self.assertEqual(code, 0)
                self.assertEqual(errors.count("\n"), 1, errors)
                self.assertIn("no usable memory", errors)

    def test_sealed_memory_is_mapped_and_cannot_be_shrunk(self):
        socket = self.folder / "s"
        impostor = self.impostor(socket)
        # Whom the impostor has not answered in time launches unseen, and says so.
        probe = self.probe(LULL_SOCKET=str(socket), LULL_REQUIRE_COORDINATOR="1")
        self.assertTrue(impostor.line().startswith("hello"))
        self.assertEqual(probe.ask("launch secret 1 5 1"), "0")
        self.assertIn("secret", impostor.ask("names"))
        self.assertEqual(impostor.ask("shrink"), "done")
        self.assertEqual(probe.ask("launch k 1 5 1"), "0")
        self.assertEqual(probe.end(), (0, ""))


@needs_root
class Strangers(Stage):
    def untouched(self, impostor, probe, complaint):
        """The program runs; the impostor has learnt nothing and can hold nobody."""
        self.assertEqual(probe.ask("launch secret 1 5 1"), "0")
        impostor.tell("close")
        impostor.tell("names")
        self.assertEqual(probe.ask("launch secret 2 5 1"), "0")
        said = []
        while len(said) < 2:
            said += [line for line in [impostor.line()] if line != "silent"]  # looked at, and left without a word
        self.assertEqual(said, ["done", "."])
        code, errors = probe.end()
        self.assertEqual((code, errors.count("\n")), (0, 1), errors)
        self.assertIn(complaint, errors)

    def test_who_took_my_default_place_is_not_my_coordinator(self):
        if pathlib.Path("/run/lull/lulld.sock").exists():
            self.skipTest("a lulld runs on this machine")
        directory = pathlib.Path(f"/tmp/lull-{VICTIM}")
        directory.mkdir()
        self.addCleanup(shutil.rmtree, directory)
        os.chown(directory, STRANGER, STRANGER)
        directory.chmod(0o755)
        impostor = self.impostor(directory / "lulld.sock", user=STRANGER)
        probe = self.probe(VICTIM, LULL_RUN="1")
        self.untouched(impostor, probe, f"a socket in another user's directory at {directory}/lulld.sock")

    def test_a_strangers_socket_in_a_directory_for_all_is_refused(self):
        socket = self.place("tmp", mode=0o1777) / "s"
        impostor = self.impostor(socket, user=STRANGER)
        self.untouched(impostor, self.probe(VICTIM, LULL_SOCKET=str(socket)), "a socket that other users can replace")

    def test_a_directory_that_others_can_write_to_is_refused_whoever_answers(self):
        socket = self.place("shared", VICTIM, 0o777) / "s"
        impostor = self.impostor(socket, user=VICTIM)
        self.untouched(impostor, self.probe(VICTIM, LULL_SOCKET=str(socket)), "a socket that other users can replace")

    def test_a_stranger_who_answers_at_a_good_place_is_refused(self):
        directory = self.place("good", VICTIM, 0o777)
        socket = directory / "s"
        impostor = self.impostor(socket, user=STRANGER)
        directory.chmod(0o700)
        self.untouched(impostor, self.probe(VICTIM, LULL_SOCKET=str(socket)), "another user's coordinator")

    def test_root_takes_orders_from_root_alone(self):
        socket = self.place("user", VICTIM) / "s"
        impostor = self.impostor(socket, user=VICTIM)
        self.untouched(impostor, self.probe(LULL_SOCKET=str(socket)), "a socket in another user's directory")

    def test_roots_coordinator_and_ones_own_are_taken(self):
        for owner in (0, VICTIM):
            with self.subTest(owner):
                socket = self.place(f"of-{owner}", owner) / "s"
                impostor = self.impostor(socket, user=owner)
                probe = self.probe(VICTIM, LULL_SOCKET=str(socket), LULL_REQUIRE_COORDINATOR="1")
                self.assertEqual(impostor.line(), f"hello {VICTIM} shim_probe")
                self.assertEqual(probe.end(), (0, ""))

    def test_the_command_asks_and_tells_a_stranger_nothing(self):
        directory = self.place("good", VICTIM, 0o777)
        socket = directory / "s"
        impostor = self.impostor(socket, user=STRANGER)
        directory.chmod(0o700)
        lull = self.folder / "bin/lull"
        for words in ((lull, "status"), (lull, "policy"), (lull, "priority", "task", "high"), (lull, "doctor", "--sim")):
            with self.subTest(words[1]):
                done = self.player(words, VICTIM, LULL_SOCKET=str(socket))
                out, errors = (text.decode() for text in done.child.communicate(timeout=lab.DEADLINE_S))
                self.assertEqual(done.child.returncode, 1, errors)
                self.assertIn(f"another user's coordinator at {socket}", out + errors)
                self.assertEqual(impostor.line(), "silent")
        probe = self.player([lull, "run", "--priority", "high", "--", self.folder / "bin/shim_probe"], VICTIM,
                            LULL_SOCKET=str(socket), LD_LIBRARY_PATH=str(self.folder / "lib"))
        self.assertEqual(probe.ask("init"), "0")
        self.assertEqual(impostor.line(), "silent")  # the command
        self.untouched(impostor, probe, "another user's coordinator")

    def test_lulld_does_not_listen_where_its_own_users_would_not_look(self):
        directory = self.place("shared", VICTIM, 0o777)
        daemon = self.player([self.folder / "bin/lulld", "--socket", directory / "s"], VICTIM)
        code, errors = daemon.end()
        self.assertEqual(code, 1)
        self.assertIn(f"{directory} does not belong to this user alone", errors)


@needs_root
class SystemPlace(Stage):
    """With a /run of the test's own."""

    def setUp(self):
        super().setUp()
        self.world = self.player(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                                  "mount -t tmpfs -o mode=755 none /run && echo mounted && exec cat"])
        try:
            self.assertEqual(self.world.line(), "mounted")
        except AssertionError as error:
            self.skipTest(f"no mount namespace: {error}")
        self.run_directory = pathlib.Path("/proc", str(self.world.child.pid), "root", "run")

    def inside(self, user):
        return ["nsenter", f"--mount=/proc/{self.world.child.pid}/ns/mnt", "setpriv", f"--reuid={user}",
                f"--regid={user}", "--clear-groups"]

    def own_runtime(self, user):
        directory = self.place("runtime", user, 0o700) / "lull"
        directory.mkdir()
        os.chown(directory, user, user)
        return directory

    def test_the_owner_of_run_lull_is_the_service_user(self):
        (self.run_directory / "lull").mkdir()
        os.chown(self.run_directory / "lull", SERVICE, SERVICE)
        impostor = self.impostor("/run/lull/lulld.sock", before=self.inside(SERVICE))
        probe = self.probe(before=self.inside(VICTIM), LULL_RUN="1", LULL_REQUIRE_COORDINATOR="1")
        self.assertEqual(impostor.line(), f"hello {VICTIM} shim_probe")
        self.assertEqual(probe.end(), (0, ""))

    def test_the_owner_of_run_lull_is_a_stranger_where_others_could_make_it(self):
        self.run_directory.chmod(0o1777)
        (self.run_directory / "lull").mkdir()
        os.chown(self.run_directory / "lull", STRANGER, STRANGER)
        impostor = self.impostor("/run/lull/lulld.sock", before=self.inside(STRANGER))
        probe = self.probe(before=self.inside(VICTIM), LULL_RUN="1")
        self.assertEqual(probe.ask("launch k 1 5 1"), "0")
        self.assertIn("a socket in another user's directory", probe.end()[1])
        self.assertTrue(impostor.said_nothing())

    def test_a_program_whose_service_has_gone_comes_back_to_it_and_to_nobody_else(self):
        (self.run_directory / "lull").mkdir()
        service = self.impostor("/run/lull/lulld.sock", before=self.inside(0))
        other = self.impostor(self.own_runtime(VICTIM) / "lulld.sock", user=VICTIM)
        probe = self.probe(before=self.inside(VICTIM), XDG_RUNTIME_DIR=str(self.folder / "runtime"))
        self.assertTrue(service.line().startswith("hello"))
        service.end()
        self.assertFalse((self.run_directory / "lull/lulld.sock").exists())

        def launch_for(seconds, done):
            until = time.monotonic() + seconds
            while time.monotonic() < until and not done():
                self.assertEqual(probe.ask("launch k 1 300 1"), "0")
                time.sleep(0.01)

        launch_for(3, lambda: False)  # the shim looks again every second
        self.assertTrue(other.said_nothing())
        service = self.impostor("/run/lull/lulld.sock", before=self.inside(0))
        launch_for(lab.DEADLINE_S, lambda: not service.said_nothing())
        self.assertTrue(service.line().startswith("hello"))
        self.assertTrue(other.said_nothing())

    def test_roots_lulld_makes_its_directory_where_every_user_finds_it(self):
        daemon = self.player(["sh", "-c", f"umask 077; exec {self.folder}/bin/lulld --sim {self.folder}/device"],
                             before=self.inside(0), XDG_RUNTIME_DIR=str(self.folder / "none"))
        lab.until(lambda: daemon.child.poll() is not None or (self.run_directory / "lull/lulld.sock").exists(), "it listens")
        self.assertIsNone(daemon.child.poll(), "lulld ended")
        mode = (self.run_directory / "lull").stat().st_mode
        self.assertEqual(stat.S_IMODE(mode), 0o755)
        probe = self.probe(before=self.inside(VICTIM), LULL_NAME="found")
        status = lab.until(lambda: self.seen_by(VICTIM, "found"), "another user's program is there")
        self.assertIn("found", status)
        self.assertEqual(probe.end()[0], 0)

    def seen_by(self, user, task):
        done = subprocess.run([str(w) for w in (*self.inside(user), self.folder / "bin/lull", "status", "--json")],
                              capture_output=True, text=True, timeout=lab.DEADLINE_S, env={"PATH": os.environ["PATH"]})
        return done.stdout if task in done.stdout else ""

    def test_roots_lulld_that_cannot_make_its_directory_fails_with_the_reason(self):
        subprocess.run(["nsenter", f"--mount=/proc/{self.world.child.pid}/ns/mnt", "mount", "-o", "remount,ro", "/run"], check=True)
        daemon = self.player([self.folder / "bin/lulld", "--sim", self.folder / "device"], before=self.inside(0))
        code, errors = daemon.end()
        self.assertEqual(code, 1)
        self.assertIn("cannot listen on /run/lull/lulld.sock: /run/lull cannot be made: Read-only file system", errors)


@needs_root
class UserNamespace(Stage):
    """A container in which root has no number: only the operator's read-only mount tells it apart."""

    def contained(self, directory, mount):
        script = 'exec "$0" "$@"'
        if mount is not None:
            script = f'mount --bind {directory} {directory} && mount -o remount,bind,{mount} {directory} && ' + script
        return ["setpriv", f"--reuid={VICTIM}", f"--regid={VICTIM}", "--clear-groups", "unshare", "--user",
                f"--map-user={VICTIM}", f"--map-group={VICTIM}", "--mount", "--keep-caps", "sh", "-c", script]

    def test_the_operators_read_only_mount_marks_root(self):
        if subprocess.run(self.contained(self.folder, "ro") + ["true"], capture_output=True).returncode != 0:
            self.skipTest("no user namespaces here")
        for mount, taken in (("ro", True), ("rw", False), (None, False)):
            with self.subTest(str(mount)):
                directory = self.place(f"root-{mount}")
                impostor = self.impostor(directory / "s")
                probe = self.probe(before=self.contained(directory, mount), LULL_SOCKET=str(directory / "s"))
                self.assertEqual(probe.ask("launch k 1 5 1"), "0")
                code, errors = probe.end()
                self.assertEqual(code, 0)
                if taken:
                    self.assertTrue(impostor.line().startswith("hello"))
                    self.assertEqual(errors, "")
                else:
                    self.assertTrue(impostor.said_nothing())
                    self.assertIn("mount lulld's directory into this container, read-only", errors)

    def test_a_read_only_mount_of_a_directory_for_all_marks_nobody(self):
        shared = self.place("shared", mode=0o1777)
        if subprocess.run(self.contained(shared, "ro") + ["true"], capture_output=True).returncode != 0:
            self.skipTest("no user namespaces here")
        impostor = self.impostor(shared / "s", user=STRANGER)
        probe = self.probe(before=self.contained(shared, "ro"), LULL_SOCKET=str(shared / "s"))
        self.assertEqual(probe.ask("launch k 1 5 1"), "0")
        self.assertTrue(impostor.said_nothing())
        self.assertEqual(probe.end()[0], 0)

    def test_a_part_of_a_larger_read_only_mount_marks_nobody(self):
        outer = self.place("outer")
        inner = outer / "lull"
        inner.mkdir()
        os.chown(inner, STRANGER, STRANGER)
        if subprocess.run(self.contained(outer, "ro") + ["true"], capture_output=True).returncode != 0:
            self.skipTest("no user namespaces here")
        impostor = self.impostor(inner / "s", user=STRANGER)
        probe = self.probe(before=self.contained(outer, "ro"), LULL_SOCKET=str(inner / "s"))
        self.assertEqual(probe.ask("launch k 1 5 1"), "0")
        self.assertTrue(impostor.said_nothing())
        self.assertEqual(probe.end()[0], 0)


if __name__ == "__main__":
    unittest.main()
