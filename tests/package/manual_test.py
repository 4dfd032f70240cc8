"""Manual pages and completions: complete against --help, and correct for the tools that read them."""

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from installation import BUILD, ROOT, run, scratch

MANUAL = BUILD / "manual"


def page(name):
    (path,) = (MANUAL / "man").glob(f"*/{name}.gz")
    return gzip.decompress(path.read_bytes()).decode()


def plain(text):
    """Roff's escapes taken out, as far as pages of ours use them."""
    return re.sub(r"\\f.", "", text).replace("\\-", "-").replace("\\(aq", "'").replace("\\&", "").replace("\\e", "\\")


def names_in_help(text):
    """The options that --help names."""
    return {name for line in text.splitlines() if line.startswith("  -") for name in re.findall(r"(?<![\w-])--?[a-z][\w-]*", line.split("  ")[1])}


def commands():
    """(words, page) of every command with a --help of CLI11."""
    listed = json.loads(run(BUILD / "bin/lull", "--describe-options").stdout)["commands"]
    for command in listed:
        told = json.loads(run(BUILD / "bin/lull", command["name"], "--describe-options").stdout)
        if "options" in told:
            yield ["lull", command["name"]], f"lull-{command['name']}.1"
            for below in told["commands"]:
                yield ["lull", command["name"], below["name"]], f"lull-{command['name']}.1"
        else:
            for below in told["commands"]:
                yield ["lull", command["name"], below["name"]], f"lull-{command['name']}-{below['name']}.1"
    yield ["lulld"], "lulld.8"
    yield ["lull-play"], "lull-play.1"


class Complete(unittest.TestCase):
    def test_every_option_of_help_is_in_the_page_and_in_each_completion(self):
        bash = (MANUAL / "completions/bash/lull").read_text()
        zsh = (MANUAL / "completions/zsh/_lull").read_text()
        seen = 0
        for words, name in commands():
            with self.subTest(" ".join(words)):
                options = names_in_help(run(BUILD / "bin" / words[0], *words[1:], "--help").stdout)
                self.assertIn("--help", options)
                text = plain(page(name))
                fish = (MANUAL / f"completions/fish/{words[0]}.fish").read_text()
                for option in options:
                    self.assertRegex(text, rf"(?<![\w-]){option}(?![\w-])")
                    self.assertRegex(bash, rf"(?<![\w-]){option}(?![\w-])")
                    self.assertRegex(zsh, rf"(?<![\w-]){option}(?![\w-])")
                    self.assertRegex(fish, rf" -[ls] {option.lstrip('-')} ")
                    seen += 1
        self.assertGreater(seen, 150)

    def test_every_command_has_its_page_and_the_page_above_names_it(self):
        listed = [command["name"] for command in json.loads(run(BUILD / "bin/lull", "--describe-options").stdout)["commands"]]
        help_text = run(BUILD / "bin/lull", "--help").stdout
        self.assertEqual(listed, re.findall(r"(?m)^  (\w+) ", help_text))
        for name in listed:
            self.assertIn(f"lull-{name} (1)", plain(page("lull.1")))
            page(f"lull-{name}.1")

    def test_the_configurations_page_has_exactly_the_keys_that_lulld_knows(self):
        # Asked of lulld itself: an unknown key is an error that names those it knows.
        def known(text, folder):
            (folder / "config.json").write_text(text)
            said = run(BUILD / "bin/lulld", "--socket", folder / "sock", "--config", folder / "config.json", code=1).stderr
            return re.search(r"is not a known key: known are (.*)", said)[1].split(", ")

        with scratch() as folder:
            keys = set(known('{"?": 1}', folder))
            for key in sorted(keys):
                for text in (f'{{"{key}": {{"?": 1}}}}', f'{{"{key}": [{{"?": 1}}]}}'):
                    (folder / "config.json").write_text(text)
                    said = run(BUILD / "bin/lulld", "--socket", folder / "sock", "--config", folder / "config.json", code=1).stderr
                    if "is not a known key" in said:
                        keys |= {f"{key}.{below}" for below in known(text, folder)}
        text = page("lulld.json.5")
        keys_part = text[text.index(".SH KEYS"):text.index(".SH FILES")]
        told = {plain(name) for name in re.findall(r"(?m)^\.TP\n\.B (\S+)$", keys_part)}
        self.assertEqual(told, keys)

    def test_the_configuration_as_shipped_and_the_pages_example_are_accepted(self):
        text = plain(page("lulld.json.5"))
        example = text[text.index(".nf\n") + 4:text.index(".fi\n")]
        json.loads(example)
        with scratch() as folder:
            for number, config in enumerate(((ROOT / "tools/setup/lulld.json").read_text(), re.sub(r', "group": "gpu"', "", example))):
                (folder / "config.json").write_text(config)
                # The lock is taken by a folder: it ends after the configuration was read.
                (folder / f"sock{number}.lock").mkdir()
                said = run(BUILD / "bin/lulld", "--socket", folder / f"sock{number}", "--config", folder / "config.json", code=1).stderr
                self.assertIn("cannot listen", said)


class Correct(unittest.TestCase):
    @unittest.skipUnless(shutil.which("man"), "no man here")
    def test_man_has_no_warning(self):
        pages = sorted((MANUAL / "man").glob("*/*.gz"))
        self.assertGreater(len(pages), 20)
        for path in pages:
            with self.subTest(path.name):
                said = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", path, env={**os.environ, "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
                self.assertEqual(said.stderr, "")

    def test_bash_completes_commands_options_and_choices(self):
        def completed(*words):
            script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lull; printf "%s\\n" "${COMPREPLY[@]}"'
            return run("bash", "-c", script, "bash", MANUAL / "completions/bash/lull", *words).stdout.split()
        self.assertEqual(completed("lull", "sim"), ["simulate"])
        self.assertEqual(completed("lull", "trace", "exp"), ["export"])
        self.assertEqual(completed("lull", "run", "--prio"), ["--priority"])
        self.assertEqual(set(completed("lull", "run", "--timing", "")), {"off", "sampled", "full"})
        self.assertEqual(completed("lulld", "--conf"), ["--config"])
        self.assertIn("ls", completed("lull", "run", "--", "l"))

    @unittest.skipUnless(shutil.which("zsh"), "no zsh here")
    def test_zsh_reads_its_completion(self):
        run("zsh", "-n", MANUAL / "completions/zsh/_lull")

    @unittest.skipUnless(shutil.which("fish"), "no fish here")
    def test_fish_completes(self):
        for path in (MANUAL / "completions/fish").iterdir():
            run("fish", "-n", path)
        said = run("fish", "--no-config", "-c", f"source {MANUAL}/completions/fish/lull.fish; complete -C 'lull run --timing '").stdout
        self.assertEqual({line.split("\t")[0] for line in said.splitlines()} & {"off", "sampled", "full"}, {"off", "sampled", "full"})


if __name__ == "__main__":
    unittest.main()
