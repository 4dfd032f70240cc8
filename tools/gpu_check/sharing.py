"""Part: two programs share the GPU: alone, default sharing and lull's policies side by side.

Played workloads first, then real models with random weights: inference of the families that the
FIKIT paper measures (torchvision classifiers, segmenters, detectors) and a small transformer, each
beside a busy one. Without MPS, and with it where it can be started.
"""

import gzip
import json
import shutil

from gpu_check import bound, mps, pairs, tasks
from gpu_check.steps import Step
from gpu_check.verdict import Failed, decision

_WORKLOADS = "examples/workloads"
# What the daemon offers but what is no policy for a latency-critical program beside a busy one.
_LEFT_OUT = {"exclusive", "time_slice"}
PLAYED = (("chatty_inference", "dense_inference"), ("chatty_inference", "training_step"), ("chatty_inference", "batch_long_kernels"))
_JUDGED = PLAYED[:2]  # these say whether the bound is kept
_JUDGED_POLICIES = ["share", "priority", "guarded"]
# (name, model and options) of the important program and of the other.
MODELS = (
    (("resnet50, batch 1", "resnet50", "--batch", "1"), ("resnet50 training, batch 64", "resnet50", "--mode", "train", "--batch", "64")),
    (("bert, batch 1", "bert", "--batch", "1"), ("vgg16, batch 64", "vgg16", "--batch", "64")),
    (("alexnet, batch 1", "alexnet", "--batch", "1"), ("deeplabv3_resnet50, batch 8", "deeplabv3_resnet50", "--batch", "8")),
    (("fasterrcnn, batch 1", "fasterrcnn_resnet50_fpn", "--batch", "1"), ("fcn_resnet50, batch 8", "fcn_resnet50", "--batch", "8")),
    (("googlenet, batch 1", "googlenet", "--batch", "1"), ("bert training, batch 32", "bert", "--mode", "train", "--batch", "32")),
    (("vit_b_16, batch 1", "vit_b_16", "--batch", "1"), ("resnet101, batch 64", "resnet101", "--batch", "64")),
)


def policies(context):
    return [name for name in context.policies() if name not in _LEFT_OUT]


def compare(context):
    """`lull compare` itself."""
    out = context.scratch / "compare.json"
    names = ("chatty_inference", "dense_inference")
    high, low = (context.root / _WORKLOADS / f"{name}.json" for name in names)
    words = [context.program(context.bin, "lull"), "compare", "--high", high, "--low", low, "--json", out]
    chosen = ["share", "fikit"] if context.short else policies(context)
    for policy in chosen:
        words += ["--policy", policy]
    if context.sim:
        words += ["--sim", "--slow-motion", "4" if context.short else "8"]
    if context.short:
        words += ["--iterations", "5"]
    env = context.env()
    if context.sim:  # it makes a device of its own
        env.pop("SIMGPU_DEVICE")
        env.pop("SIMGPU_SLOW_MOTION")
    done = context.run(words, 240, env)
    if not done.good:
        raise Failed("lull compare: " + done.why())
    found = json.loads(out.read_text())
    return compare_data(found, f"lull compare {' '.join(names)}")


def compare_data(found, title):
    rows = [[r["policy"], r["role"], r["task"], r["completed"], r["jct_ms_mean"], r["p50_ms"], r["p99_ms"], r["slowdown_p50"],
             r["slowdown_p99"], r["throughput_ratio"], r["device_share"], "yes" if r["valid"] else r["reason"]]
            for r in found["rows"]]
    where = found["device"] + ("" if "simulated" in found["device"] or not found["simulated"] else " (simulated)")
    return {"compare": found, "tables": [{
        "title": f"{title}: {where}, {found['sharing']}",
        "columns": ["policy", "role", "task", "done", "JCT mean ms", "p50", "p99", "slowdown p50", "slowdown p99", "throughput",
                    "device share", "valid"], "rows": rows}]}


def _timing(context, **wanted):
    return pairs.Timing(0.4, 0.15, 1) if context.short else pairs.Timing(**wanted)


def _specs(context, high, low):
    return [(name, tasks.played(context, context.root / _WORKLOADS / f"{name}.json", seed)) for seed, name in enumerate((high, low), 1)]


def _played(high, low, with_mps):
    return lambda context: _measure(context, _specs(context, high, low), f"{high} beside {low}", with_mps)


def _judged(high, low):
    """A played pair without MPS that says whether the bound is kept; its decisions are kept for a replay."""
    def run(context):
        # Longer than elsewhere: guarded begins anew each time, and has to learn.
        timing = _timing(context, window_s=4.0, settle_s=2.0)
        rows, line = _logged(context, f"{high}-{low}", *_specs(context, high, low), _JUDGED_POLICIES, timing)
        judged = {policy: bound.verdict(rows, policy) for policy in ("guarded", "priority")}
        return {"rows": rows, "mps": False, "judged": judged, "lines": [line],
                "tables": [pairs.table(f"{high} beside {low}", rows, context.slow_motion)],
                "decision": decision(context, 5, f"is the bound kept: {high} beside {low}, no MPS?", *bound.sentence(judged))}
    return run


def _logged(context, name, *measured):
    """(rows of pairs.measure, a line that says where the daemon's decisions were kept)."""
    log = context.scratch / "decisions"
    rows = pairs.measure(context, *measured, decision_log=log)
    kept = context.out / f"decisions-{name}.gz"
    with open(log, "rb") as plain, gzip.open(kept, "wb", compresslevel=1) as packed:
        shutil.copyfileobj(plain, packed)
    log.unlink()
    return rows, f"the policies' decisions: {kept.name}"


def _models(high, low, with_mps):
    def run(context):
        context.torch()
        specs = [(name, tasks.model(context, *options)) for name, *options in (high, low)]
        return _measure(context, specs, f"{high[0]} beside {low[0]}", with_mps)
    return run


def _measure(context, specs, title, with_mps):
    chosen = ["share", "priority"] if context.short else policies(context)
    if not with_mps:
        rows = pairs.measure(context, *specs, chosen, _timing(context))
        return {"rows": rows, "mps": False, "tables": [pairs.table(title, rows, context.slow_motion)]}
    with mps.service(context) as served:
        rows, line = _logged(context, "MPS-" + "-".join(name.split(",")[0].replace(" ", "_") for name, _ in specs), *specs, chosen, _timing(context), served.env())
    return {"rows": rows, "mps": True, "lines": [line], "tables": [pairs.table(title + ", with MPS", rows)]}


def steps(context):
    played = _JUDGED if context.short else PLAYED
    made = [Step("lull compare", compare, 60)]
    made += [Step(f"{h} + {l}", _judged(h, l), 85, question=5) if (h, l) in _JUDGED else Step(f"{h} + {l}", _played(h, l, False), 50)
             for h, l in played]
    made += [Step(f"{h[0]} + {l[0]}", _models(h, l, False), 85) for h, l in MODELS[:2]]
    made += [Step(f"MPS: {h} + {l}", _played(h, l, True), 65) for h, l in played[:1]]
    made += [Step(f"MPS: {h[0]} + {l[0]}", _models(h, l, True), 90) for h, l in MODELS[:1]]
    made += [Step(f"{h[0]} + {l[0]}", _models(h, l, False), 85) for h, l in MODELS[2:]]
    made += [Step(f"MPS: {h[0]} + {l[0]}", _models(h, l, True), 90) for h, l in MODELS[1:2]]
    return made
