"""Part: one program breaks, or is killed, with work on the device: who lives, what is said, and how long until a
program is served again. Without MPS, then under MPS: a service of our own for each scene, because the one before may
have broken it."""

import json
import signal
import time

from gpu_check import mps
from gpu_check.figures import shown
from gpu_check.steps import Step
from gpu_check.verdict import UNDECIDED, Failed, Skipped, decision

_QUESTION = 8
_READY_S = 60
_LOOK_S = 3.0      # for so long somebody who goes on is watched
_LAST_S = 1.0      # who said nothing in the last of it stands still; a round takes some ms
_TOLD_S = 3.0      # a terminated client is told in so long, or not at all
_ATTEMPT_S = 8.0   # a program that gets no answer in so long is not served
_SERVED_S = 40.0   # for so long it is tried
ADDRESS, KILL, TERMINATE = "illegal address", "killed with work in flight", "terminate_client, then killed"


def said(child):
    """The JSON lines that an actor has printed."""
    text = child.out()
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines() if line.startswith("{")]


def _actor(context, env, *words):
    return context.children.start([context.program(context.bin, "lull-device-probe"), *words], env, words[0])


def _wait_for(context, child, key):
    if not child.wait_for(lambda: any(key in line for line in said(child)), context.timeout(_READY_S)):
        last = (said(child) or [{}])[-1]
        if "skipped" in last:
            raise Skipped(last["skipped"])
        raise Failed(f"{child.name}: " + (last.get("error") or last.get("failed") or child.last_words()))


def _attempt(context, env):
    """What a program that starts now is told; empty when it is served."""
    child = _actor(context, env, "bystander", "--seconds", "0.02")
    child.wait(context.timeout(_ATTEMPT_S))
    child.end()
    last = (said(child) or [{}])[-1]
    served = last.get("rounds", 0) > 0 and "error" not in last
    return "" if served else last.get("error") or last.get("failed") or last.get("skipped") or f"no answer in {_ATTEMPT_S:g} s"


def _until_served(context, env, since):
    """{served_s: seconds from `since`, None: not in time; refusals: what the others before were told}"""
    refusals, end = [], time.monotonic() + min(_SERVED_S, context.left_s())
    while time.monotonic() < end:
        why = _attempt(context, env)
        if not why:
            return {"served_s": time.monotonic() - since, "refusals": refusals}
        if not refusals or refusals[-1] != why:
            refusals.append(why)
    return {"served_s": None, "refusals": refusals}


def _fault(context, env, how, service):
    """Breaks or kills one program. When that was, in seconds of time.monotonic(), and what is known of it."""
    if how == ADDRESS:
        victim = _actor(context, env, "illegal-address")
        victim.wait(context.timeout(_READY_S))
        victim.end()
        last = (said(victim) or [{}])[-1]
        if "failed" in last or "at_ns" not in last:
            raise Failed("the program that was to fault did not get so far: " + (last.get("failed") or victim.last_words()))
        if "error" not in last:
            raise Skipped("the device runs no code, or lets a program write anywhere: nothing faults")
        return last["at_ns"] / 1e9, {"told": last["error"]}
    victim = _actor(context, env, "flood")
    _wait_for(context, victim, "in_flight")
    found = {}
    if how == TERMINATE:
        for server in service.servers():
            found["terminate_client"] = (service.terminate_client(server, victim.pid) or "no answer").strip() or "no word"
        victim.wait_for(lambda: any("error" in line for line in said(victim)), _TOLD_S)
        found["told"] = next((line["error"] for line in said(victim) if "error" in line), f"nothing in {_TOLD_S:g} s")
    at = time.monotonic()
    victim.signal(signal.SIGKILL)
    victim.wait(10)
    victim.end()
    return at, found


def scene(context, how, service=None):
    """What became of a bystander, and of those who came later, when one program broke."""
    env = service.env() if service else context.env()
    slow = ["--spin-us", "100", "--pause-us", "1000"]
    bystander = _actor(context, env, "bystander", "--seconds", str(_READY_S + _LOOK_S + _SERVED_S), *slow)
    _wait_for(context, bystander, "working")
    log_before = len(service.log()) if service else 0
    at, found = _fault(context, env, how, service)
    bystander.wait_for(lambda: any("error" in line for line in said(bystander)), min(_LOOK_S / 2 if context.short else _LOOK_S, context.left_s()))
    looked_until = time.monotonic()
    error = next((line for line in said(bystander) if "error" in line), None)
    # What ran on for a moment before everything stopped is no work.
    since = max(at, looked_until - _LAST_S)
    working = [line["at_ns"] for line in said(bystander) if "working" in line and line["at_ns"] / 1e9 > since]
    found.update(how=how, mps=service is not None, bystander="told: " + error["error"] if error else "works on" if working else "stands still",
                 bystander_lives=bool(working) and error is None, told_ms=(error["error_ns"] / 1e9 - at) * 1e3 if error else None)
    found["beside_it"] = _attempt(context, env) or "served"
    bystander.end()
    found.update(_until_served(context, env, at))
    if service:
        found["log"] = [line for line in service.log()[log_before:].splitlines() if line.strip()][-12:]
    return found


def judged(scenes):
    """(answer, sentence) of scenes under MPS: {how: found}."""
    if not scenes:
        return UNDECIDED, "No scene was played."

    def lives(how):
        return scenes[how]["bystander_lives"]

    def harmless(how):
        return lives(how) and scenes[how]["served_s"] is not None

    def served(how):
        seconds = scenes[how]["served_s"]
        return f"served again after {shown(seconds)} s" if seconds is not None else "not served again"

    parts = []
    if ADDRESS in scenes:
        parts.append(f"An illegal address of one client {'spares' if lives(ADDRESS) else 'ends'} the others, {served(ADDRESS)}.")
    if KILL in scenes:
        parts.append(f"A client killed with work in flight {'leaves the others alone' if lives(KILL) else 'harms the others'}, {served(KILL)}.")
    if TERMINATE in scenes:
        parts.append(f"With terminate_client before, it {'leaves them alone' if lives(TERMINATE) else 'harms them'}, {served(TERMINATE)}.")
    if KILL not in scenes:
        return UNDECIDED, " ".join(parts + ["Nothing is known of a kill alone."])
    if harmless(KILL):
        return "kill is harmless", " ".join(parts + ["lull may end a client as it ends any program."])
    if TERMINATE not in scenes:
        return UNDECIDED, " ".join(parts + ["Nothing is known of terminate_client before it."])
    if harmless(TERMINATE):
        return "terminate first", " ".join(parts + ["lull ends a client's work by terminate_client before it kills it."])
    return "all go down together", " ".join(parts + ["Only programs that may fail together share a server."])


_COLUMNS = ["what", "the broken one was told", "a bystander", "told after ms", "one that came later, beside it", "served again after s", "refused meanwhile"]


def _table(title, scenes):
    return {"title": title, "columns": _COLUMNS, "rows": [
        [one["how"], one.get("told", "-"), one["bystander"], one["told_ms"], one["beside_it"], one["served_s"], "; ".join(one["refusals"]) or "-"]
        for one in scenes]}


def without_mps(context):
    scenes, lines = [], []
    for how in (KILL, ADDRESS):
        try:
            scenes.append(scene(context, how))
        except Skipped as why:
            lines.append(f"{how}: {why}")
    data = {"answer": scenes, "lines": lines, "tables": [_table("Without MPS", scenes)]}
    harmed = [one["how"] for one in scenes if not one["bystander_lives"] or one["served_s"] is None]
    if harmed:
        raise Failed(f"{', '.join(harmed)}: without MPS another program was harmed", data)
    return data


def with_mps(context):
    scenes, lines = {}, []
    for how in (TERMINATE, KILL, ADDRESS):
        try:
            with mps.service(context) as service:
                scenes[how] = found = scene(context, how, service)
        except Skipped as why:
            if not scenes:
                raise
            lines.append(f"{how}: {why}")
            continue
        except Failed as why:
            lines.append(f"{how}: {why}")
            continue
        lines += [f"{how}: server: {line}" for line in found["log"]]
        if "terminate_client" in found:
            lines.append(f"{how}: terminate_client: {found['terminate_client']}")
    answer, sentence = judged(scenes)
    data = {"answer": scenes, "lines": lines, "tables": [_table("Under MPS, a service of its own for each", list(scenes.values()))],
            "decision": decision(context, _QUESTION, "under MPS, who survives the end of a client with work on the device?", answer, sentence)}
    if not scenes:
        raise Failed("no scene came to its end", data)
    return data


def steps(context):
    del context
    return [Step("without MPS", without_mps, 30, question=_QUESTION), Step("under MPS", with_mps, 120, question=_QUESTION)]
