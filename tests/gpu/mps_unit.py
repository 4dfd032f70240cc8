"""MPS of our own and of somebody else, with a stand-in for NVIDIA's programs (fake_mps_control.py)."""

import json
import os
import pathlib
import shutil
import signal
import socket
import tempfile
import time
import unittest
import unittest.mock

import lab
from gpu_check import mps
from gpu_check.verdict import Skipped


class Log(unittest.TestCase):
    def test_the_servers_log_says_what_priority_each_client_was_granted(self):
        log = ("[2026-06-01 00:13:07.412 Other   812] Start\n"
               "[2026-06-01 00:13:07.934 Other   812] New worker thread\n"
               "[2026-06-01 00:13:08.100 Server   812] Client {PID: 4711, Context ID: 1} connected\n"
               "[2026-06-01 00:13:08.101 Server   812] Priority level of client {4711} is: 1 \n"
               "[2026-06-01 00:13:08.300 Server   812] Priority level of client {4712} is: 0\n"
               "[2026-06-01 00:13:08.300 Server   812] Priority level of client {PID: 4713, Context ID: 2} is: 1 (below normal)\n"
               "[2026-06-01 00:13:08.301 Server   812] Status of client {4711, 1} is ACTIVE\n")
        self.assertEqual(mps.granted_priorities(log), {4711: 1, 4712: 0, 4713: 1})

    def test_a_log_that_says_nothing_of_it_grants_nothing(self):
        self.assertEqual(mps.granted_priorities("[2026-06-01 00:13:08.301 Server 812] Status of client {4711, 1} is ACTIVE\n"), {})
        self.assertEqual(mps.granted_priorities(""), {})

    def test_lists_of_processes_are_lines_of_digits(self):
        self.assertEqual(mps.process_ids("812\n4711\n"), [812, 4711])
        self.assertEqual(mps.process_ids("Server is not found\n"), [])


class SomebodyElses(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lull-mps-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "proc").mkdir()
        (self.folder / "pipes").mkdir()

    def process(self, pid, name, state="S"):
        folder = self.folder / "proc" / str(pid)
        folder.mkdir()
        (folder / "comm").write_text(name[:15] + "\n")
        (folder / "stat").write_text(f"{pid} ({name[:15]}) {state} 1 1\n")

    def seen(self):
        return mps.foreign(self.folder / "proc", [self.folder / "pipes"])

    def test_nothing_is_there(self):
        self.process(12, "bash")
        self.assertEqual(self.seen(), "")

    def test_a_control_socket_is_seen(self):
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(self.folder / "pipes/control"))
            self.assertEqual(self.seen(), f"{self.folder}/pipes/control")

    def test_a_server_is_seen_by_its_process_and_a_dead_one_is_not(self):
        self.process(12, "nvidia-cuda-mps-server", state="Z")
        self.assertEqual(self.seen(), "")
        self.process(13, "nvidia-cuda-mps-server")
        self.assertEqual(self.seen(), "process 13 (nvidia-cuda-mps)")

    def test_a_server_of_ours_that_takes_its_time_to_go_is_not_somebody_elses(self):
        self.process(13, "nvidia-cuda-mps-server")
        with unittest.mock.patch.object(mps, "_ours", {13}):
            self.assertEqual(self.seen(), "")

    def test_no_child_inherits_what_was_meant_for_another(self):
        with lab.context() as context, unittest.mock.patch.dict(os.environ, {"CUDA_MPS_CLIENT_PRIORITY": "1", "CUDA_MPS_PIPE_DIRECTORY": "/elsewhere"}):
            self.assertFalse([name for name in context.env() if name.startswith("CUDA_MPS_")])

    def test_with_one_here_no_child_becomes_its_client_and_none_of_ours_is_started(self):
        with lab.context() as context:
            context.sim = False
            context._foreign_mps = self.seen()
            self.assertNotIn("CUDA_MPS_PIPE_DIRECTORY", context.env())
            self.process(13, "nvidia-cuda-mps-control")
            context._foreign_mps = self.seen()
            self.assertTrue(context.env()["CUDA_MPS_PIPE_DIRECTORY"].startswith(str(context.scratch)))
            with lab.fake_mps(), self.assertRaisesRegex(Skipped, "somebody else.*process 13"):
                with mps.service(context):
                    self.fail("a service beside somebody else's")
            self.assertEqual(context.children._all, [])


class Ours(unittest.TestCase):
    def context(self):
        stack = lab.context_with_fake_mps()
        context = stack.__enter__()
        self.addCleanup(stack.__exit__, None, None, None)
        return context

    def _go_deaf(self, served):
        """Nothing is answered from now on, nor waited for for long; until then a busy machine may answer late."""
        self.assertEqual(served.ask("go deaf"), "deaf from here on\n")
        for what in ("_ASK_S", "_END_S"):
            patience = unittest.mock.patch.object(mps, what, 0.3)
            patience.start()
            self.addCleanup(patience.stop)

    def test_clients_have_their_priorities_and_everything_is_gone_behind_it(self):
        context = self.context()
        with mps.service(context) as served:
            self.assertTrue(served.pipes.is_relative_to(context.scratch))
            low = context.children.start(["sleep", "1000"], served.env(priority=mps.BELOW_NORMAL, threads=50))
            high = context.children.start(["sleep", "1000"], served.env())
            self.assertEqual((served.priority_of(low.pid, 10), served.priority_of(high.pid, 10)), (1, 0))
            self.assertIsNone(served.priority_of(1, 0))
            server, = served.servers()
            self.assertLessEqual({low.pid, high.pid}, set(served.clients(server)))
            self.assertEqual(served.terminate_client(server, low.pid), f"asked for {server} {low.pid}\n")
            environment = pathlib.Path(f"/proc/{low.pid}/environ").read_text()
            self.assertIn("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50", environment)
        self.assertFalse(low.running() or high.running() or served.daemon.running())
        self.assertFalse(_runs(server))

    def test_its_sockets_have_names_that_a_socket_can_have_in_any_folder(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lull-long-")) / ("x" * 90)
        folder.mkdir()
        self.addCleanup(shutil.rmtree, folder.parent)
        with unittest.mock.patch.object(tempfile, "tempdir", str(folder)):
            context = self.context()
        with mps.service(context) as served:
            self.assertLess(len(str(served.pipes / "control_privileged")), 108)

    def test_a_daemon_that_answers_nothing_is_ended_and_so_is_its_server(self):
        context = self.context()
        with mps.service(context) as served:
            server, = served.servers()
            self._go_deaf(served)
            self.assertEqual(served.servers(), [])
            self.assertTrue(_runs(server, 0))
        self.assertFalse(served.daemon.running() or _runs(server))

    def test_what_a_killed_check_left_is_ended_by_the_next_and_nothing_else(self):
        context = self.context()
        with mps.service(context) as served:
            server, = served.servers()
            self.assertEqual(json.loads(context.results.path.read_text())["mps_running"], str(served.pipes))
            context.results.remember("mps_running", "/elsewhere")
            mps.end_leftover(context.results)
            self.assertTrue(_runs(server, 0))
            served.daemon.signal(signal.SIGKILL)
            context.results.remember("mps_running", str(served.pipes))
            mps.end_leftover(context.results)
            self.assertFalse(_runs(server))
            self.assertNotIn("mps_running", context.results.data)

    def test_a_check_killed_before_it_knew_of_a_server_leaves_none_either(self):
        context, seen = self.context(), []

        def killed(served):
            served.daemon.wait_for(lambda: len(mps.started_for(served.pipes)) == 2, 60)
            seen.extend(mps.started_for(served.pipes))
            served.daemon.signal(signal.SIGKILL)
            mps.end_leftover(context.results)
            self.assertFalse([pid for pid in seen if _runs(pid)])
            raise Skipped("killed")
        with unittest.mock.patch.object(mps.Service, "wait_ready", killed), self.assertRaises(Skipped):
            with mps.service(context):
                self.fail("it is ready")
        self.assertEqual(len(seen), 2)

    def test_a_server_that_nobody_listed_is_ended_too(self):
        context = self.context()
        with mps.service(context) as served:
            server, = served.servers()
            self._go_deaf(served)
            served._servers.clear()
        self.assertFalse(_runs(server))

    def test_the_control_program_of_a_container_is_found_though_path_lacks_its_folder(self):
        context = self.context()
        folder = os.environ["PATH"].split(os.pathsep)[0]
        smi = pathlib.Path(tempfile.mkdtemp(prefix="lull-smi-"))
        self.addCleanup(shutil.rmtree, smi)
        without = os.environ["PATH"].removeprefix(folder + os.pathsep)
        with unittest.mock.patch.dict(os.environ, {"PATH": without}), unittest.mock.patch.object(mps, "_FOLDERS", (folder,)):
            self.assertEqual(mps.find_control(), folder + "/nvidia-cuda-mps-control")
            with mps.service(context) as served:
                self.assertIn(folder, pathlib.Path(f"/proc/{served.daemon.pid}/environ").read_text())
        # Beside nvidia-smi, to which PATH may hold a link only.
        (smi / "nvidia-smi").symlink_to(pathlib.Path(folder) / "nvidia-smi")
        shutil.copy("/bin/true", pathlib.Path(folder) / "nvidia-smi")
        with unittest.mock.patch.dict(os.environ, {"PATH": str(smi)}), unittest.mock.patch.object(mps, "_FOLDERS", ()):
            self.assertEqual(mps.find_control(), folder + "/nvidia-cuda-mps-control")

    def test_where_programs_run_without_a_server_nothing_is_measured_of_mps(self):
        context = self.context()
        with unittest.mock.patch.dict(os.environ, {"FAKE_MPS": "aloof"}), self.assertRaisesRegex(Skipped, "no server was started"):
            with mps.service(context):
                self.fail("nobody is a client")

    def test_where_it_does_not_start_or_is_not_there_the_step_is_skipped_with_the_reason(self):
        context = self.context()
        os.environ["FAKE_MPS"] = "broken"
        self.addCleanup(os.environ.pop, "FAKE_MPS", None)
        with self.assertRaisesRegex(Skipped, "MPS cannot be started: An instance of this daemon"):
            with mps.service(context):
                self.fail("it started")
        nowhere = [unittest.mock.patch.dict(os.environ, {"PATH": "/nowhere"}), unittest.mock.patch.object(mps, "_FOLDERS", ())]
        for patched in nowhere:
            patched.start()
            self.addCleanup(patched.stop)
        with self.assertRaisesRegex(Skipped, "no nvidia-cuda-mps-control"):
            with mps.service(context):
                self.fail("it is there")


def _runs(pid, patience_s=5):
    """Whether it still runs after a while."""
    end = time.monotonic() + patience_s
    while True:
        try:
            if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return False
        except OSError:
            return False
        if time.monotonic() >= end:
            return True
        time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()
