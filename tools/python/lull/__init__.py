"""lull from Python: ask and steer a running lulld, and read traces.

    import lull
    for task in lull.status().tasks:
        print(task.name, task.priority, task.held_share)
    lull.set_priority("train", "low")
    lull.suspend("train")
    frame = lull.read_trace("run.lull")      # pandas where installed, else pyarrow, else a list

Everything goes through the command `lull`, which finds the coordinator and decides whether it is to be
trusted. Nothing here is needed to run a program under lull: `lull run -- PROGRAM` is enough.
"""

from lull.coordinator import (Device, Job, NoCoordinator, Refused, Status, Task, ask, kernels, migrate, pin, policy, profiles,
                              resize, resume, set_policy, set_priority, status, suspend)
from lull.programs import LullError, program
from lull.traces import read_trace, trace_report

__all__ = ["Device", "Job", "LullError", "NoCoordinator", "Refused", "Status", "Task", "ask", "kernels", "migrate", "pin",
           "policy", "profiles", "program", "read_trace", "resize", "resume", "set_policy", "set_priority", "status", "suspend",
           "trace_report"]
