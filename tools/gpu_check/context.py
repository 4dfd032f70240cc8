"""What every step works with: where things are, what the machine has, how to start a child."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import time

from gpu_check import mps
from gpu_check.children import Children
from gpu_check.verdict import Failed, OutOfTime, Skipped

_REPLY_WAIT_S = 5.0
_DAEMON_WAIT_S = 15.0
_LONGEST_FOLDER = 48
_LEAST_S = 5.0  # less is no time for anything


class Context:
    def __init__(self, root, build, out, sim, short, results):
        self.root, self.build, self.out = pathlib.Path(root), pathlib.Path(build), pathlib.Path(out)
        self.sim, self.short, self.results = sim, short, results
        self.bin, self.lib, self.check = self.build / "bin", self.build / "lib/lull", self.build / "check"
        # It holds sockets, those of MPS below, whose names may not be longer than 107 bytes.
        folder = tempfile.gettempdir()
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="lull-check-", dir=folder if len(os.fsencode(folder)) <= _LONGEST_FOLDER else "/tmp"))
        self.children = Children(self.scratch)
        self.ends_at = time.monotonic() + 3600
        self.sim_device = self.scratch / "device"
        self.slow_motion = (4 if short else 10) if sim else 1
        self.no_device = ""  # why there is none
        self._torch = None
        self._folders = None
        self._foreign_mps = None

    def close(self):
        self.children.end_all()
        shutil.rmtree(self.scratch, ignore_errors=True)

    # --- time -----------------------------------------------------------------------------------
    def left_s(self):
        return self.ends_at - time.monotonic()

    def timeout(self, wanted_s):
        """As long as wanted, but not beyond the part's budget."""
        left = self.left_s()
        if left < _LEAST_S:
            raise OutOfTime()
        return min(wanted_s, left)

    # --- environment ----------------------------------------------------------------------------
    def env(self, **more):
        """Nobody's lull, nobody's simulated GPU, nobody's MPS; on --sim the simulated driver in front."""
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("LULL_", "SIMGPU_", "LD_PRELOAD", "CUDA_INJECTION64_PATH", "CUDA_MPS_"))}
        if self.foreign_mps():
            env["CUDA_MPS_PIPE_DIRECTORY"] = str(self.scratch / "no-mps")  # without one, the driver looks in its default folder
        env["PYTHONUNBUFFERED"] = "1"
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        if self.sim:
            env["LD_LIBRARY_PATH"] = str(self.lib / "sim")
            env["SIMGPU_DEVICE"] = str(self.sim_device)
            env["SIMGPU_SLOW_MOTION"] = str(self.slow_motion)
        env.update({k: str(v) for k, v in more.items()})
        return env

    def with_libraries(self, env, *names):
        """The folders of these libraries in front of LD_LIBRARY_PATH; Skipped when one is not there."""
        folders = []
        for name in names:
            found = self.find_library(name)
            if found is None:
                raise Skipped(f"no {name} on this machine")
            folders.append(str(found.parent))
        old = env.get("LD_LIBRARY_PATH")
        env["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys(folders + ([old] if old else [])))
        return env

    def library_folders(self):
        if self._folders is None:
            folders = [pathlib.Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
            torch = self.torch(needed=False)
            for site in torch.get("sites", []) if torch else []:
                folders += sorted(pathlib.Path(site).glob("nvidia/*/lib"))
            for pattern in ("cuda/lib64", "cuda-1*/lib64", "cuda/extras/CUPTI/lib64", "cuda-1*/extras/CUPTI/lib64"):
                folders += sorted(pathlib.Path("/usr/local").glob(pattern))
            folders += [pathlib.Path("/usr/lib/x86_64-linux-gnu"), pathlib.Path("/usr/lib64")]
            self._folders = folders
        return self._folders

    def find_library(self, name):
        for folder in self.library_folders():
            if (folder / name).exists():
                return folder / name
        return None

    # --- what is there --------------------------------------------------------------------------
    def program(self, folder, name):
        path = folder / name
        if not path.exists():
            raise Skipped(f"no {path.relative_to(self.build)} in this build: NVIDIA's own runtime or nvcc "
                          "was not there when it was made" if folder == self.check else
                          f"no {path.relative_to(self.build)} in this build: build all of lull")
        return path

    def needs_gpu(self, why="needs the real driver"):
        if self.sim:
            raise Skipped(f"{why}: this is the simulated GPU")

    def foreign_mps(self):
        """What there was of somebody else's MPS when this check began, in words; empty: nothing."""
        if self._foreign_mps is None and not self.sim:
            mps.end_leftover(self.results)
            self._foreign_mps = mps.foreign()
        return self._foreign_mps or ""

    def torch(self, needed=True):
        """{python, torch, cuda, torchvision, transformers, sites, gpu}; Skipped when there is none."""
        if self._torch is None:
            known = self.results.data.get("torch", {})  # importing it takes long
            if not (known.get("gpu") and pathlib.Path(known["python"]).exists()):
                known = self._find_torch()
                self.results.data["torch"] = known
            self._torch = known
        if needed and self.sim:
            raise Skipped("PyTorch cannot run on the simulated GPU (NVIDIA's runtime verifies its driver)")
        if needed and not self._torch.get("torch"):
            raise Skipped("no PyTorch: " + self._torch.get("why", "no python3 here has it"))
        if needed and not self._torch.get("gpu"):
            raise Skipped("PyTorch sees no GPU: " + self._torch.get("why", ""))
        return self._torch

    def _find_torch(self):
        if self.sim:
            return {}
        ask = ("import json,site,sys,sysconfig\n"
               "sites=list(dict.fromkeys(site.getsitepackages()+[sysconfig.get_paths()['purelib']]))\n"
               "o={'python':sys.executable,'version':sys.version.split()[0],'sites':sites}\n"
               "try:\n"
               "  import torch\n"
               "  o.update(torch=torch.__version__,cuda=torch.version.cuda,gpu=torch.cuda.is_available())\n"
               "except Exception as e:\n"
               "  o['why']=str(e)[:200]\n"
               "for m in ('torchvision','transformers','triton'):\n"
               "  try:\n"
               "    o[m]=__import__('importlib.metadata').metadata.version(m)\n"
               "  except Exception:\n"
               "    pass\n"
               "print('FOUND '+json.dumps(o))\n")
        answer = {}
        for python in dict.fromkeys(p for p in (os.environ.get("LULL_CHECK_PYTHON"), shutil.which("python3"),
                                                shutil.which("python")) if p):
            done = self.children.run([python, "-c", ask], self.env(), 180, "find-torch")
            line = done.child.line_with("FOUND ")
            if done.good and line:
                found = json.loads(line[len("FOUND "):])
                if found.get("torch"):
                    return found
                answer = answer or found
        return answer

    # --- children -------------------------------------------------------------------------------
    def run(self, words, timeout_s, env=None, **more):
        done = self.children.run(words, env or self.env(), self.timeout(timeout_s), **more)
        if done.timed_out and self.left_s() < _LEAST_S:
            raise OutOfTime()
        return done

    def probe(self, *words, timeout_s=60, env=None, user=None):
        """One subcommand of lull-device-probe: its JSON. Skipped and Failed as it says."""
        program = self.program(self.bin, "lull-device-probe")
        done = self.run([program, *words], timeout_s, env, name=f"probe-{words[0]}", user=user)
        return self.probe_answer(words[0], done)

    @staticmethod
    def probe_answer(what, done):
        lines = [line for line in done.out.splitlines() if line.startswith("{")]
        try:
            answer = json.loads(lines[-1]) if lines else {}
        except ValueError:
            answer = {}
        if "skipped" in answer:
            raise Skipped(f"{what}: {answer['skipped']}")
        if "failed" in answer or not done.good or not answer:
            raise Failed(f"{what}: {answer.get('failed') or done.why()}")
        return answer

    def model_now_ns(self, sim_device=None):
        """The clock that iterations are reported in; each simulated device has its own."""
        if not self.sim:
            return time.monotonic_ns()
        with open(sim_device or self.sim_device, "rb") as file:
            head = file.read(32)
        origin_ns, slow_motion = struct.unpack_from("<Qd", head, 16)
        return (time.monotonic_ns() - origin_ns) / slow_motion

    def lull_run(self, socket_path, *options):
        words = [self.program(self.bin, "lull"), "run", "--socket", socket_path, "--require-coordinator", *options]
        return words + (["--sim"] if self.sim else []) + ["--"]

    def policies(self):
        """The daemon's policies, in its order."""
        done = self.run([self.program(self.bin, "lull"), "policy", "--list"], 10)
        if not done.good:
            raise Failed("lull policy --list: " + done.why())
        return done.out.split()

    @contextlib.contextmanager
    def daemon(self, policy="share", **more):
        one = Daemon(self, policy, **more)
        try:
            yield one
        finally:
            one.child.end()


class Daemon:
    """A lulld of our own, ended with the step."""

    _serial = 0

    def __init__(self, context, policy, env=None, decision_log=None, sim_device=None):
        Daemon._serial += 1
        self.socket = str(context.scratch / f"d{Daemon._serial}.sock")
        words = [context.program(context.bin, "lulld"), "--socket", self.socket, "--policy", policy]
        if context.sim:
            device = pathlib.Path(sim_device or context.sim_device)
            if not device.exists():
                context.probe("facts", env=env)  # whoever comes first makes the device
            words += ["--sim", device]
        if decision_log is not None:
            words += ["--decision-log", decision_log]
        self.child = context.children.start(words, env or context.env(), "lulld")
        if not self.child.wait_for(self.answers, _DAEMON_WAIT_S):
            self.child.end()
            raise Failed("lulld does not answer: " + self.child.last_words())

    def answers(self):
        try:
            return bool(self.ask({"op": "ping"}).get("ok"))
        except (OSError, ValueError):
            return False

    def ask(self, request):
        """The whole answer: lulld gives long lists in pages (coordinator/channel/messages.h)."""
        answer = self._page(request)
        while "next" in answer:
            page = self._page({**request, "from": answer.pop("next")})
            for key, value in page.items():
                answer[key] = answer[key] + value if isinstance(value, list) and key in answer else value
        return answer

    def _page(self, request):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(_REPLY_WAIT_S)
            connection.connect(self.socket)
            connection.send(json.dumps(request).encode())
            reply = b""
            while packet := connection.recv(1 << 17):
                reply += packet
        return json.loads(reply)

    def status(self):
        return self.ask({"op": "status"})

    def client(self, pid):
        return next((c for c in self.status().get("clients", []) if c["pid"] == pid), None)

    def kernels(self, client):
        return self.ask({"op": "kernels", "client": client}).get("kernels", [])

    def set_policy(self, policy):
        answer = self.ask({"op": "policy", "policy": policy})
        if not answer.get("ok"):
            raise Failed(f"lulld refused policy {policy}: {answer.get('error', answer)}")


def quiet(words, timeout_s=20):
    """stdout of a command that may not be there; None when it is not, or fails."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s,
                              check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
