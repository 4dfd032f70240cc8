"""Part: models recorded by lull itself, as workload files for examples/workloads: each says on what
it was recorded. The files come back in one archive."""

import io
import json
import tarfile

from gpu_check import tasks, trace_check
from gpu_check.results import write_whole
from gpu_check.steps import Step
from gpu_check.verdict import Failed, Skipped

MOST_BYTES = 400_000
_ITERATIONS = 40  # enough to see what repeats
# name of the file: what it is, models.py's words
# name of the file: (what it is, kind, batch), models.py's words
RECORDED = {
    "resnet50_inference": (("resnet50", "inference", 1), "resnet50"),
    "resnet50_training": (("resnet50 training step", "training", 32), "resnet50", "--mode", "train"),
    "bert_inference": (("BERT base, 128 tokens", "inference", 1), "bert"),
    "vgg16_inference": (("vgg16", "inference", 16), "vgg16"),
    "alexnet_inference": (("alexnet", "inference", 1), "alexnet"),
    "googlenet_inference": (("googlenet", "inference", 1), "googlenet"),
    "deeplabv3_inference": (("deeplabv3_resnet50, 320x320", "inference", 1), "deeplabv3_resnet50"),
    "fasterrcnn_inference": (("fasterrcnn_resnet50_fpn, 400x400", "inference", 1), "fasterrcnn_resnet50_fpn"),
    "vit_inference": (("vit_b_16", "inference", 1), "vit_b_16"),
}
_SAID = ("gpu", "driver", "model", "batch", "date")


def check(text):
    """A workload that says where it was recorded, and holds something; else Failed."""
    try:
        workload = json.loads(text)
    except ValueError as error:
        raise Failed(f"what was exported is no JSON: {error}") from None
    if "lull_workload" not in workload or not workload.get("ops"):
        raise Failed("what was exported is no workload, or an empty one")
    missing = [key for key in _SAID if not workload.get("recorded", {}).get(key)]
    if missing:
        raise Failed(f"the exported workload does not say its {', '.join(missing)}")


def keep(context, name, text):
    """Into OUT/workloads; what is worth shipping of that folder also into OUT/workloads.tar.gz."""
    folder = context.out / "workloads"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{name}.json", text)
    models = [path for path in sorted(folder.glob("*.json")) if path.stem in RECORDED]
    if not models:
        return folder / f"{name}.json"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in models:
            archive.add(path, arcname=f"workloads/{path.name}")
    (context.out / "workloads.tar.gz").write_bytes(packed.getvalue())
    return folder / f"{name}.json"


def _finish(context, name, what, file):
    model, kind, batch = what
    machine = context.results.data["machine"]
    by = f" (PyTorch {machine['torch']}, random weights)" if machine.get("torch") and kind != "other" else ""
    text = trace_check.export_workload(context, file, "--name", name, "--kind", kind, "--model", model + by, "--batch", batch,
                                       "--driver", machine.get("driver") or f"CUDA {machine.get('cuda', '?')}")
    check(text)
    if len(text) > MOST_BYTES:
        raise Failed(f"{name} has {len(text)} bytes, too many to ship: {MOST_BYTES} at most")
    path = keep(context, name, text)
    done = context.run([context.program(context.bin, "lull-play"), path, "--describe"], 20)
    if not done.good:
        raise Failed("lull-play cannot read what was exported: " + done.why())
    return {"lines": [" ".join(done.out.split()), f"{len(text)} bytes"], "bytes": len(text)}


def played(context):
    """A played workload, recorded: the way from a program to a file works without PyTorch too."""
    trace_check.needed(context, "record", "export")
    source = context.root / "examples/workloads/chatty_inference.json"
    words = [context.program(context.bin, "lull-play"), source, "--iterations", "20"]
    file, _ = trace_check.record(context, words, context.env(), 60)
    return _finish(context, "chatty_inference_again", ("the shipped chatty_inference, played", "other", 1), file)


def _model(name):
    what, model, *words = RECORDED[name]

    def run(context):
        trace_check.needed(context, "record", "export")
        if model not in tasks.WITHOUT_TORCHVISION and not context.torch().get("torchvision"):
            raise Skipped("no torchvision beside this PyTorch")
        program = [context.torch()["python"], context.root / "tools/gpu_check/models.py", model, *words, "--batch", what[2],
                   "--iterations", _ITERATIONS]
        file, _ = trace_check.record(context, program, context.env(), 120)
        return _finish(context, name, what, file)
    return run


def steps(context):
    del context
    return [Step("played", played, 8)] + [Step(name, _model(name), 25) for name in RECORDED]
