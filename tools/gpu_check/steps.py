"""Runs steps in an order, each with a verdict, none stopping the next."""

import time
import traceback

from gpu_check.verdict import FAIL, PASS, SKIP, UNDECIDED, Failed, OutOfTime, Skipped

# The questions of docs/hardware, in the order in which half an hour on a GPU is best spent on them.
QUESTIONS = (1, 7, 9, 4, 5, 6, 8, 2, 3)


class Step:
    """`run(context)` returns the step's data. `usual_s`: how long it takes on a machine with a GPU. `host_only`: it
    needs no device. `question`: the number of the question of docs/hardware that it helps to answer. `closing`: it puts
    together what others found: it comes last, out of budget too, and again whenever another step has a new result."""

    def __init__(self, name, run, usual_s=20, host_only=False, question=None, closing=False):
        self.name, self.run, self.usual_s, self.host_only = name, run, usual_s, host_only
        self.question, self.closing = question, closing


def in_order(steps, before=None):
    """`steps`: [(part/name, Step)]; `before`: {name: what it decided, or None} of those that passed on a GPU of this kind
    (docs/hardware). Open questions first, then what was never asked, then what is known; within each as given. A question
    is open until it is decided."""
    before = before or {}

    def place(named):
        name, step = named
        if step.closing:
            return 3, 0
        if name in before and (not step.question or before[name] not in (None, UNDECIDED)):
            return 2, 0
        return (0, QUESTIONS.index(step.question)) if step.question else (1, 0)
    return sorted(steps, key=place)


def run_steps(steps, context, budget_s, again, say, recorded=lambda: None):
    """`steps`: [(part/name, Step)]. Returns the number of steps left for another run. Every finished step is stored at
    once, and `recorded` is called."""
    context.ends_at = time.monotonic() + budget_s
    left = fresh = 0
    for name, step in steps:
        if context.results.finished(name, not context.no_device) and not again and not (step.closing and fresh):
            say(f"{name}: {context.results.step(name)['verdict']}, as found before")
            continue
        usual_s = min(step.usual_s, 20) if context.sim else step.usual_s
        # What is cut off is begun anew by the next run: less time is lost by ending early.
        if not step.closing and (left or context.left_s() < usual_s):
            left += 1
            continue
        if _finish(name, step, context, say):
            fresh += 1
            try:
                recorded()
            except Exception as error:  # what was found is stored
                say(f"the report cannot be written: {type(error).__name__}: {error}")
        else:
            left += 1
    if left:
        say(f"{left} steps left, the time is near its end: run the same command again to go on")
    return left


def _finish(name, step, context, say):
    """False: it ran out of time, and has no result."""
    start = time.monotonic()
    if step.closing:
        context.ends_at = max(context.ends_at, start + step.usual_s)
    data, reason, verdict = {}, "", PASS
    no_device = bool(context.no_device) and not step.host_only
    try:
        if no_device:
            raise Skipped("no GPU to use: " + context.no_device)
        data = step.run(context) or {}
    except Skipped as why:
        verdict, reason = SKIP, str(why)
    except Failed as why:
        verdict, reason, data = FAIL, str(why), why.data
    except OutOfTime:
        say(f"{name}: not finished, the time is up")
        return False
    except Exception as error:  # a bug of the check is a failure of its step, not of the rest
        last = traceback.extract_tb(error.__traceback__)[-1]
        verdict, reason = FAIL, f"the check itself: {type(error).__name__}: {error} ({last.name}:{last.lineno})"
    finally:
        context.children.end_all()
    seconds = time.monotonic() - start

    def record():
        context.results.record(name, verdict=verdict, reason=" ".join(reason.split())[:600], seconds=round(seconds, 3),
                               date=time.strftime("%Y-%m-%dT%H:%M:%S%z"), data=data, **({"no_device": True} if no_device else {}))
    try:
        record()
    except (TypeError, ValueError) as error:  # so is a figure that is no number
        verdict, reason, data = FAIL, f"the check itself: what it found cannot be stored: {error}", {}
        record()
    say(f"{name}: {verdict}{': ' + reason if reason else ''} ({seconds:.1f} s)")
    if decided := data.get("decision"):
        say(f"  {decided['asked']} {decided['answer']}")
    return True
