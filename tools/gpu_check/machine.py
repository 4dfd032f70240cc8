"""What was measured on: GPU, driver, processor, versions, the state that figures depend on."""

import datetime
import os
import pathlib
import platform
import re

from gpu_check import carried
from gpu_check.context import quiet
from gpu_check.verdict import Failed, Skipped

_QUERY = ("name", "uuid", "driver_version", "memory.total", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem",
          "persistence_mode", "compute_mode", "mig.mode.current", "pstate", "temperature.gpu", "power.draw",
          "pcie.link.gen.current", "pcie.link.width.current")


def parse_smi(text):
    """The first GPU of `nvidia-smi --query-gpu=... --format=csv,noheader`, by name of the query."""
    line = (text or "").splitlines()[0] if text else ""
    values = [value.strip() for value in line.split(",")]
    return dict(zip(_QUERY, values)) if len(values) == len(_QUERY) else {}


def processor(text):
    names = re.findall(r"^model name\s*:\s*(.+)$", text, re.M)
    return names[0] if names else platform.machine()


def describe(context):
    about = {"date": datetime.date.today().isoformat(), "simulated": context.sim}
    if not context.sim:
        smi = parse_smi(quiet(["nvidia-smi", "--query-gpu=" + ",".join(_QUERY), "--format=csv,noheader"]))
        about.update({f"smi.{key}": value for key, value in smi.items()})
        about["mps"] = context.foreign_mps() or "not running"
        if toolkit := quiet(["nvcc", "--version"]) or quiet(["/usr/local/cuda/bin/nvcc", "--version"]):
            about["nvcc"] = (re.findall(r"release ([\d.]+)", toolkit) or ["?"])[0]
    try:
        facts = context.probe("facts", timeout_s=60)
        about.update(gpu=facts["name"], uuid=facts["uuid"], cuda=facts["cuda_version"],
                     memory_bytes=facts["memory_bytes"], sm_count=facts.get("sm_count"))
    except (Skipped, Failed) as why:
        about["gpu_problem"] = str(why)
    if "smi.driver_version" in about:
        about["driver"] = about.pop("smi.driver_version")
    about["cpu"] = processor(pathlib.Path("/proc/cpuinfo").read_text())
    about["cores"] = os.cpu_count()
    about["kernel"] = platform.release()
    about["glibc"] = " ".join(platform.libc_ver())
    release = pathlib.Path("/etc/os-release")
    if release.exists():
        about["system"] = (re.findall(r'^PRETTY_NAME="(.+)"', release.read_text(), re.M) or ["?"])[0]
    about["python"] = platform.python_version()
    if torch := context.torch(needed=False):
        about.update({key: torch[key] for key in ("torch", "torchvision", "transformers", "triton") if key in torch})
        about["torch_python"] = torch.get("version")
    about["carried_mib"] = round(carried.carried_bytes(context.build) / 2 ** 20, 1)
    about["lull"] = (quiet([context.bin / "lull", "--version"]) or "?").removeprefix("lull ")
    if commit := quiet(["git", "-C", context.root, "rev-parse", "--short", "HEAD"]):
        about["commit"] = commit
    return about
