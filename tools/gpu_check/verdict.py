"""How a step ends: it returns its data (passed), or raises one of these."""


class Skipped(Exception):
    """This machine, or this build, lacks what the step needs. The reason is one line."""


class Failed(Exception):
    """lull, or a fact it relies on, is not as it should be. `data` is what was found all the same."""

    def __init__(self, reason, data=None):
        super().__init__(reason)
        self.data = data or {}


class OutOfTime(Exception):
    """The part's budget is used up: the step is not finished, and a later run begins it again."""


PASS, FAIL, SKIP = "pass", "fail", "skipped"
