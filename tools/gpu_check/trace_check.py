"""lull's own recording: `lull trace record`, `show`, `export`, where this build has them."""

import json

from gpu_check.verdict import Failed, Skipped

_NO_SUCH = 2  # exit code of a subcommand that there is not


def needed(context, *subcommands):
    """Skipped when this build's `lull trace` cannot do one of them."""
    lull = context.program(context.bin, "lull")
    for name in ("", *subcommands):
        words = [lull, "trace"] + ([name] if name else []) + ["--help"]
        done = context.run(words, 10)
        if done.code == _NO_SUCH or "is no command" in done.err:
            raise Skipped(f"this build has no `{' '.join(['lull', 'trace', name]).strip()}` yet")


def record(context, words, env, timeout_s):
    """Runs a program under `lull trace record` alone, with a daemon of its own. (file, child)."""
    file = context.scratch / f"recorded-{len(list(context.scratch.glob('recorded-*')))}.lull"
    order = [context.program(context.bin, "lull"), "trace", "record", "-o", file, "--timing", "full"]
    done = context.run(order + (["--sim"] if context.sim else []) + ["--", *words], timeout_s, env)
    if not done.good or not file.exists():
        raise Failed("lull trace record: " + done.why())
    return file, done.child


def show(context, file):
    done = context.run([context.program(context.bin, "lull"), "trace", "show", file, "--json"], 60)
    if not done.good:
        raise Failed("lull trace show: " + done.why())
    return json.loads(done.out)


def export_workload(context, file, *options):
    """The text of the workload file."""
    out = file.with_suffix(".json")
    lull = context.program(context.bin, "lull")
    done = context.run([lull, "trace", "export", file, "--format", "workload", "-o", out, *options], 60)
    if not done.good or not out.exists():
        raise Failed("lull trace export: " + done.why())
    return out.read_text()
