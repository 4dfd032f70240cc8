"""Runs a part: its steps in order, each with a verdict, none stopping the next."""

import time
import traceback

from gpu_check.verdict import FAIL, PASS, SKIP, Failed, OutOfTime, Skipped

# A step is begun only when this share of what it usually takes is left.
_LEAST_SHARE = 0.8


class Step:
    """`run(context)` returns the step's data. `usual_s`: how long it takes on a machine with a GPU.
    `host_only`: it needs no device."""

    def __init__(self, name, run, usual_s=20, host_only=False):
        self.name, self.run, self.usual_s, self.host_only = name, run, usual_s, host_only


def run_part(part, steps, context, budget_s, again, say):
    """Returns the number of steps left for another run. Every finished step is stored at once."""
    context.ends_at = time.monotonic() + budget_s
    left = 0
    for step in steps:
        name = f"{part}/{step.name}"
        if context.results.finished(name) and not again:
            say(f"{name}: {context.results.step(name)['verdict']}, as found before")
            continue
        usual_s = min(step.usual_s, 20) if context.sim else step.usual_s
        if left or context.left_s() < _LEAST_SHARE * usual_s:
            left += 1
            continue
        start = time.monotonic()
        data, reason, verdict = {}, "", PASS
        try:
            if context.no_device and not step.host_only:
                raise Skipped("no GPU to use: " + context.no_device)
            data = step.run(context) or {}
        except Skipped as why:
            verdict, reason = SKIP, str(why)
        except Failed as why:
            verdict, reason, data = FAIL, str(why), why.data
        except OutOfTime:
            left += 1
            say(f"{name}: not finished, the part's time is up")
            continue
        except Exception as error:  # a bug of the check is a failure of its step, not of the rest
            last = traceback.extract_tb(error.__traceback__)[-1]
            verdict, reason = FAIL, f"the check itself: {type(error).__name__}: {error} ({last.name}:{last.lineno})"
        finally:
            context.children.end_all()
        seconds = time.monotonic() - start
        context.results.record(name, verdict=verdict, reason=" ".join(reason.split())[:600], seconds=round(seconds, 3),
                               date=time.strftime("%Y-%m-%dT%H:%M:%S%z"), data=data)
        say(f"{name}: {verdict}{': ' + reason if reason else ''} ({seconds:.1f} s)")
    if left:
        say(f"{part}: {left} steps left, the time is near its end: run the same command again to go on")
    return left
