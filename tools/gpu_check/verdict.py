"""How a step ends: it returns its data (passed), or raises one of these; and what it decides."""


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

UNDECIDED = "not decided"


def decision(context, question, asked, answer, sentence):
    """What a step's figures decide, for `data["decision"]`: the report shows it in front. `question`: its number in
    docs/hardware; `asked`: the question in one line; `answer`: a word or two, UNDECIDED where the figures do not say;
    `sentence`: what follows for lull."""
    if context.sim:
        answer, sentence = UNDECIDED, "Simulated figures decide nothing."
    return {"question": question, "asked": asked, "answer": answer, "sentence": sentence}
