"""What has been found so far, in one JSON file: written whole after each step, so that a run that is
cut off anywhere goes on where it was."""

import json
import os
import pathlib
import tempfile

FORMAT = 1


class Unusable(Exception):
    """The file cannot be gone on with; the text says why and what to do."""


class Results:
    def __init__(self, folder, simulated):
        self.path = pathlib.Path(folder) / "results.json"
        self.data = {"format": FORMAT, "simulated": simulated, "machine": {}, "steps": {}}
        if self.path.exists():
            self.data = self._read(simulated)

    def _read(self, simulated):
        try:
            data = json.loads(self.path.read_text())
        except (OSError, ValueError) as error:
            raise Unusable(f"cannot go on from {self.path}: {error}: move it away or name another --out") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("steps"), dict):
            raise Unusable(f"cannot go on from {self.path}: not results of this version: name another --out")
        if data.get("simulated") != simulated:
            kind = "the simulated GPU" if data.get("simulated") else "a real GPU"
            raise Unusable(f"cannot go on from {self.path}: it holds results of {kind}: name another --out")
        return data

    def finished(self, step, has_device=True):
        """What was skipped for want of a device is open again where there is one."""
        return step in self.data["steps"] and not (has_device and self.data["steps"][step].get("no_device"))

    def step(self, step):
        return self.data["steps"].get(step)

    def record(self, step, **found):
        json.dumps(found, allow_nan=False)  # what is no JSON is refused before it is among the rest
        self.data["steps"][step] = found
        self.save()

    def remember(self, key, value):
        """Beside what was found; None forgets it."""
        if value is None:
            self.data.pop(key, None)
        else:
            self.data[key] = value
        self.save()

    def set_machine(self, machine):
        known = self.data["machine"]
        if known.get("gpu") and machine.get("gpu") and known.get("uuid") != machine.get("uuid"):
            others = self.data.setdefault("other_machines", [])
            if machine not in others:
                others.append(machine)
        else:
            known.update(machine)
        self.save()

    def save(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, json.dumps(self.data, indent=1, allow_nan=False) + "\n")


def passed_before(folder, gpu):
    """{name: what it decided, or None} of the steps that passed on a GPU of this name, by the results brought back to
    `folder`/*/."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*/results.json")):
        data = json.loads(path.read_text())
        if not data["simulated"] and data["machine"].get("gpu") == gpu:
            found |= {name: step["data"].get("decision", {}).get("answer") for name, step in data["steps"].items() if step["verdict"] == "pass"}
    return found


def write_whole(path, text):
    """The file has the old text or the new one, whatever happens in between."""
    path = pathlib.Path(path)
    handle, name = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
