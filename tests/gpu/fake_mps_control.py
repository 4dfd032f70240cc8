#!/usr/bin/env python3
"""A stand-in for nvidia-cuda-mps-control: the daemon (-f), its server, and the program that asks it. A client is
every process whose environment names this daemon's pipes; the server writes down what priority each has, in NVIDIA's
words. After `go deaf`, which is answered, no command is; with FAKE_MPS=broken the daemon does not start, with FAKE_MPS=aloof it
has no server for anybody."""

import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

PIPES = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
LOGS = pathlib.Path(os.environ["CUDA_MPS_LOG_DIRECTORY"])


def named(name):
    ctypes.CDLL(None).prctl(15, name.encode())  # PR_SET_NAME


def clients():
    """{pid: its priority}"""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "environ").read_bytes().decode(errors="replace").split("\0")
            mine = f"CUDA_MPS_PIPE_DIRECTORY={PIPES}" in words
            if mine and not (process / "comm").read_text().startswith("nvidia-cuda-mps") and b"fake_mps" not in (
                    process / "cmdline").read_bytes():
                priority = [word.split("=")[1] for word in words if word.startswith("CUDA_MPS_CLIENT_PRIORITY=")]
                found[int(process.name)] = int(priority[0]) if priority else 0
        except (OSError, ValueError):
            continue
    return found


def serve():
    """The server: it leads a session of its own, as NVIDIA's does, and leaves when it is told to, or its folder is gone."""
    named("nvidia-cuda-mps-server")
    seen = set()
    with open(LOGS / "server.log", "a", buffering=1) as log:
        log.write("[2026-01-01 00:00:00.000 Other 1] Start\n")
        while LOGS.exists():
            for pid, priority in clients().items():
                if pid not in seen:
                    seen.add(pid)
                    log.write(f"[2026-01-01 00:00:00.000 Server 1] Client {{PID: {pid}, Context ID: 1}} connected\n"
                              f"[2026-01-01 00:00:00.000 Server 1] Priority level of client {{{pid}}} is: {priority} \n")
            time.sleep(0.1)


def control():
    if os.environ.get("FAKE_MPS") == "broken":
        sys.exit("An instance of this daemon is already running")
    named("nvidia-cuda-mps-control")
    # Under its name from its first moment, as a program of that name is: between fork and exec it has the daemon's.
    program = PIPES / "nvidia-cuda-mps-server"
    program.symlink_to(os.path.realpath(sys.executable))
    server = subprocess.Popen([program, __file__, "serve"], start_new_session=True, stdin=subprocess.DEVNULL)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(PIPES / "control"))
        listener.listen()
        while True:
            one, _ = listener.accept()
            with one:
                words = one.recv(4096).decode().split()
                if words[:1] == ["quit"]:
                    server.send_signal(signal.SIGTERM)
                    server.wait()
                    return
                listed = "" if os.environ.get("FAKE_MPS") == "aloof" else f"{server.pid}\n"
                answer = {"get_server_list": lambda: listed,
                          "get_client_list": lambda: "".join(f"{pid}\n" for pid in clients()),
                          "go": lambda: "deaf from here on\n",
                          "terminate_client": lambda: "asked for " + " ".join(words[1:]) + "\n"}.get(words[0], lambda: "?\n")()
                one.sendall(answer.encode())
            if words[:1] == ["go"]:
                threading.Event().wait()


def ask():
    for line in sys.stdin:
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(PIPES / "control"))
            one.sendall(line.encode())
            while part := one.recv(4096):
                sys.stdout.write(part.decode())


if __name__ == "__main__":
    {"serve": serve, "-f": control}.get((sys.argv[1:] or [""])[0], ask)()
