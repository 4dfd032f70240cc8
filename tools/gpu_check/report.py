"""The readable report: Markdown made from results.json alone. Pure.

A step's data may hold "lines" (sentences), "tables": [{title, columns, rows, note?}] and a "decision"
(verdict.py); everything else in it is for whoever reads the JSON. What is simulated says so in each table's title.
"""

from gpu_check.figures import shown

_MACHINE = (("date", "date"), ("gpu", "GPU"), ("driver", "driver"), ("cuda", "CUDA of the driver"), ("cpu", "processor"),
            ("cores", "cores"), ("system", "system"), ("kernel", "kernel"), ("glibc", "C library"), ("mps", "MPS"),
            ("smi.clocks.sm", "SM clock"), ("smi.clocks.max.sm", "SM clock at most"), ("smi.clocks.mem", "memory clock"),
            ("smi.pstate", "power state"), ("smi.temperature.gpu", "temperature"), ("smi.power.draw", "power"),
            ("smi.persistence_mode", "persistence mode"), ("smi.compute_mode", "compute mode"),
            ("smi.mig.mode.current", "MIG"), ("smi.pcie.link.gen.current", "PCIe generation"),
            ("smi.pcie.link.width.current", "PCIe lanes"), ("nvcc", "nvcc"), ("torch", "PyTorch"),
            ("torchvision", "torchvision"), ("transformers", "transformers"), ("triton", "triton"),
            ("torch_python", "Python of PyTorch"), ("lull", "lull"), ("commit", "commit"), ("carried_mib", "build, MiB"), ("gpu_problem", "problem"))
VERDICTS = ("pass", "fail", "skipped")


def table(columns, rows):
    def cell(value):
        return shown(value).replace("|", "\\|").replace("\n", " ")

    lines = ["| " + " | ".join(cell(c) for c in columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def render(data, parts):
    """`parts`: {part: what it is}, in the order of the report."""
    simulated = data["simulated"]
    text = ["# lull on " + ("the simulated GPU" if simulated else str(data["machine"].get("gpu", "no GPU"))), ""]
    if simulated:
        text += ["**Everything here is simulated**: it shows that lull and this check work, and is no evidence about "
                 "hardware.", ""]
    counts = {verdict: 0 for verdict in VERDICTS}
    for step in data["steps"].values():
        counts[step["verdict"]] += 1
    text += [", ".join(f"{counts[v]} {v}" for v in VERDICTS) + ".", ""]
    machine = data["machine"]
    text += [table(("", ""), [(label, machine[key]) for key, label in _MACHINE if machine.get(key) not in (None, "")]), ""]
    decided = sorted((step["data"]["decision"]["question"], name, step["data"]["decision"])
                     for name, step in data["steps"].items() if step.get("data", {}).get("decision"))
    if decided:
        text += ["## Decisions", "", table(("", "asked", "answer", "what follows", "step"),
                                           [(number, one["asked"], one["answer"], one["sentence"], name) for number, name, one in decided]), ""]
    for part, what in parts.items():
        steps = {name: step for name, step in data["steps"].items() if name.split("/")[0] == part}
        if not steps:
            continue
        text += [f"## {part}: {what}", ""]
        text += [table(("step", "verdict", "why", "s"),
                       [(name.split("/", 1)[1], step["verdict"], step.get("reason", ""), round(step["seconds"], 1))
                        for name, step in steps.items()]), ""]
        for name, step in steps.items():
            text += _details(name.split("/", 1)[1], step.get("data", {}), simulated)
    return "\n".join(text).rstrip() + "\n"


def _details(name, data, simulated):
    lines, tables = data.get("lines", []), data.get("tables", [])
    if not lines and not tables:
        return []
    text = [f"### {name}", ""]
    for line in lines:
        text += [f"- {line}"]
    if lines:
        text += [""]
    for one in tables:
        mark = " (simulated)" if simulated and "simulat" not in one["title"] else ""
        text += [f"{one['title']}{mark}", "", table(one["columns"], one["rows"]), ""]
        if one.get("note"):
            text += [one["note"], ""]
    return text
