"""The picture at the beginning of README.md is what its command draws, byte for byte, and the sentence below it what that says.

After a change of a policy: LULL_REWRITE=1 python3 tests/simulate/picture_test.py writes both; look at the picture.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import textwrap
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
LULL = pathlib.Path(os.environ.get("LULL_BUILD_DIR", ROOT / "build/dev")) / "bin/lull"
README = ROOT / "README.md"
PICTURE = "docs/simulation/share-guarded.svg"


class Picture(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lull-picture-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def command(self):
        (line,) = re.findall(r"^.*lull (simulate .*--picture \S+)$", README.read_text(), re.M)
        words = line.split()
        self.assertEqual(words[-1], PICTURE)
        return words[:-1]

    def draw(self, name):
        done = subprocess.run([LULL, *self.command(), self.folder / name], capture_output=True, text=True, check=True)
        return (self.folder / name).read_bytes(), done.stdout

    def test_the_command_of_the_readme_draws_it_again(self):
        drawn, said = self.draw("one.svg")
        self.assertEqual(self.draw("two.svg")[0], drawn)
        verdict = " ".join(said.strip().split("\n\n")[-1].split())
        if os.environ.get("LULL_REWRITE"):
            (ROOT / PICTURE).write_bytes(drawn)
            quoted = textwrap.fill(verdict, 140, initial_indent="> ", subsequent_indent="> ") + "\n"
            README.write_text(re.sub(r"(?:^> .*\n)+", lambda _: quoted, README.read_text(), count=1, flags=re.M))
        self.assertEqual(drawn, (ROOT / PICTURE).read_bytes(), "draw it again: LULL_REWRITE=1")
        self.assertIn(verdict, " ".join(README.read_text().replace("> ", "").split()))

    def test_it_is_a_picture_of_both_policies(self):
        tree = xml.etree.ElementTree.fromstring((ROOT / PICTURE).read_bytes())
        space = "{http://www.w3.org/2000/svg}"
        names = [text.text for text in tree.iter(space + "text") if text.get("class") == "name"]
        self.assertEqual(names, ["share", "guarded"])
        lanes = [path.get("d").count("M") for path in tree.iter(space + "path") if path.get("class") in ("high", "low")]
        self.assertEqual(len(lanes), 4)
        self.assertGreater(min(lanes), 20)
        self.assertIn("simulated", tree.find(space + "title").text)

    def test_only_a_device_that_runs_one_kernel_at_a_time_is_drawn(self):
        done = subprocess.run([LULL, "simulate", "--sharing", "mps", "--picture", self.folder / "x.svg"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"^lull: simulate: --picture: [^\n]+: [^\n]+\n$")


if __name__ == "__main__":
    unittest.main()
