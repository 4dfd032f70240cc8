"""The project's rules, as tests: one class a rule. Run by ctest, or by hand with a class's name.

Reads the sources below the current directory and the build in LULL_BUILD_DIR. LULL_CUDA_STUB, the
toolkit's libcuda stub, is optional: without it the committed list of driver exports stands alone.
"""

import fnmatch
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LULL_BUILD_DIR", ROOT / "build/dev"))
CUDA_INCLUDE = pathlib.Path(os.environ.get("LULL_CUDA_INCLUDE", "/usr/local/cuda/include"))
STUB = os.environ.get("LULL_CUDA_STUB", "")
FOLDERS = ["shim", "coordinator", "policies", "tools", "tests", "examples"]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(library):
    lines = run("nm", "-D", "--defined-only", str(library)).splitlines()
    names = {line.split()[-1].split("@")[0] for line in lines if line.split()[-2] in "TWiBDR"}
    return names


def hooked():
    text = (ROOT / "shim/driver_api.def").read_text()
    return [m.group(1) for m in re.finditer(r"^\s*LULL_HOOK\w*\(\s*(\w+)", text, re.M)]


def patterns(path):
    """Lines `glob : reason`; returns {glob: reason}."""
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        glob, separator, reason = line.partition(":")
        assert separator and reason.strip(), f"{path}:{number}: expected 'glob : reason'"
        for one in glob.split():
            assert one not in found, f"{path}:{number}: {one} is there twice"
            found[one] = reason.strip()
    return found


def driver_exports():
    return set((ROOT / "tools/simgpu/driver/driver_exports.txt").read_text().split())


def sources(*suffixes, folders=FOLDERS):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path


class Exports(unittest.TestCase):
    def test_the_shim_exports_exactly_the_rows_of_the_list_dlsym_and_what_nvtx_asks_for(self):
        names = exported(BUILD / "lib/lull/liblull.so")
        rows = hooked()
        self.assertEqual(len(rows), len(set(rows)), "a row is there twice")
        self.assertGreater(len(rows), 100)
        self.assertEqual(names, set(rows) | {"dlsym", "InitializeInjectionNvtx2"})

    def test_every_driver_export_is_hooked_or_passed_through_with_a_reason(self):
        passed = patterns(ROOT / "shim/passthrough.txt")
        rows = set(hooked())
        used = set()
        for name in sorted(driver_exports()):
            matches = [glob for glob in passed if fnmatch.fnmatchcase(name, glob)]
            used.update(matches)
            if name in rows:
                exact = [glob for glob in matches if glob == name]
                self.assertFalse(exact, f"{name} is hooked and passed through by name")
            else:
                self.assertTrue(matches, f"{name} is neither hooked nor in shim/passthrough.txt")
        self.assertFalse(set(passed) - used, "patterns that match no driver export")

    def test_every_hooked_name_is_a_driver_export(self):
        self.assertFalse(set(hooked()) - driver_exports())

    def test_the_committed_export_list_is_the_toolkit_stubs(self):
        if not STUB or not pathlib.Path(STUB).exists():
            self.skipTest("this toolkit has no libcuda stub")
        names = {n for n in exported(STUB) if n.startswith("cu")}
        self.assertEqual(names, driver_exports())

    def test_every_hook_has_the_signature_of_cuda_h(self):
        # The rows are typed by decltype of cuda.h's own declaration; here the compiler compares
        # each with the shim's definition, so that a row without a type check cannot slip in.
        text = (ROOT / "shim/driver_api.def").read_text()
        header = (CUDA_INCLUDE / "cuda.h").read_text()
        self.assertIn("decltype", "".join(p.read_text() for p in sources(".h", ".cc", folders=["shim"])))
        unknown = []
        for name in hooked():
            base = re.sub(r"_pt[sd][sz]$", "", name)
            base = re.sub(r"_v\d+$", "", base)
            if not re.search(rf"\b{base}(_v\d+)?\b", header) and name not in text:
                unknown.append(name)
        self.assertFalse(unknown)


class Layering(unittest.TestCase):
    PAGE = "docs/architecture.md"
    HEAD = "| folder | what | may include |"
    ROW = re.compile(r"\| `([\w/]+)/` \| .+ \| (nothing|`[\w/]+`(?:, `[\w/]+`)*) \|")

    def allowed(self):
        """Of each folder in the page's table, the folders whose headers it may include, itself among them."""
        lines = (ROOT / self.PAGE).read_text().splitlines()
        self.assertTrue(self.HEAD in lines, f"{self.PAGE} has no table with the head {self.HEAD}")
        found = {}
        first = lines.index(self.HEAD) + 2
        for number, line in enumerate(lines[first:], first + 1):
            if not line.startswith("|"):
                break
            row = self.ROW.fullmatch(line)
            self.assertTrue(row, f"{self.PAGE}:{number}: expected | `folder/` | what | `folder`, `folder` |, or | nothing | in the end: {line}")
            folder, others = row[1], set(re.findall(r"`(.+?)`", row[2]))
            self.assertNotIn(folder, found, f"{self.PAGE}:{number}: this folder has two rows")
            for name in {folder} | others:
                self.assertTrue((ROOT / name).is_dir(), f"{self.PAGE}:{number}: {name} is no folder")
            found[folder] = {folder} | others
        return found

    def test_includes_run_one_way(self):
        wrong = []
        for part, allowed in self.allowed().items():
            for path in sources(".h", ".cc", ".def", ".cu", ".c", folders=[part]):
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                    if not match or "/" not in match.group(1):
                        continue
                    target = match.group(1)
                    if not any(target.startswith(root + "/") for root in allowed):
                        wrong.append(f"{path.relative_to(ROOT)}:{number}: by {self.PAGE} {part} may not include {target}, but {', '.join(sorted(allowed))}")
        self.assertFalse(wrong, "\n".join(wrong))

    def test_every_source_is_in_a_folder_of_the_table(self):
        rows = {ROOT / folder for folder in self.allowed()}
        for path in sources(".h", ".cc", ".def", ".cu", ".c", folders=[folder for folder in FOLDERS if folder != "tests"]):
            self.assertTrue(rows & set(path.parents), f"{self.PAGE}: no row for {path.parent.relative_to(ROOT)}: add one, with what it may include")

    def test_launch_policies_and_job_policies_do_not_know_each_other(self):
        for part, other in (("policies/jobs", "policies/launch/"), ("policies/launch", "policies/jobs/")):
            found = list(sources(".h", ".cc", folders=[part]))
            self.assertTrue(found, part)
            for path in found:
                self.assertNotIn(f'#include "{other}', path.read_text(), str(path))

    def test_cli11_is_compiled_once(self):
        including = [str(path.relative_to(ROOT)) for path in sources(".h", ".cc")
                     if re.search(r"#\s*include\s+<CLI/", path.read_text())]
        self.assertEqual(including, ["coordinator/command_line/command_line.cc"])

    def test_nothing_but_the_shim_and_its_tests_includes_the_shim(self):
        for path in sources(".h", ".cc"):
            part = path.relative_to(ROOT).parts
            if part[0] == "shim" or part[:2] == ("tests", "shim"):
                continue
            self.assertNotRegex(path.read_text(), r'#\s*include\s+"shim/', str(path))


class Purity(unittest.TestCase):
    BANNED_SYMBOLS = re.compile(
        r"^(clock_gettime|gettimeofday|time|nanosleep|clock_nanosleep|open|open64|read|write|socket|"
        r"fopen|fopen64|printf|puts|getenv|secure_getenv|rand|srand|random|getrandom|pthread_\w+|"
        r"syscall|futex|mmap|fork|usleep|sleep|__cxa_guard_acquire|"
        r"_ZNSt6chrono.*|_ZNSt13random_device.*|_ZSt4cout|_ZSt4cerr)$")
    BANNED_WORDS = re.compile(
        r"\b(std::chrono|steady_clock|system_clock|random_device|std::rand|std::thread|std::mutex|"
        r"getenv|iostream|fstream|std::cout|std::cerr|printf|thread_local|mutable static)\b")

    def archives(self):
        found = [BUILD / f"lib/static/liblull_{part}.a" for part in ("policies", "engine", "moves")]
        for archive in found:
            self.assertTrue(archive.exists(), f"{archive} is not built")
        return found

    def test_objects_of_policies_and_engine_ask_for_nothing_impure(self):
        wrong = []
        for archive in self.archives():
            for line in run("nm", "-u", "--quiet", str(archive)).splitlines():
                parts = line.split()
                if len(parts) == 2 and parts[0] == "U":
                    name = parts[1].split("@")[0]
                    if self.BANNED_SYMBOLS.match(name):
                        wrong.append(f"{archive.name}: {name}")
        self.assertFalse(wrong, "\n".join(wrong))

    def test_no_writable_static_state(self):
        wrong = []
        for archive in self.archives():
            for line in run("objdump", "-t", str(archive)).splitlines():
                # value, flags, section, size, name; constants that hold pointers are in .data.rel.ro
                match = re.match(r"^[0-9a-f]+ .{7} (\.data\S*|\.bss\S*|\.tdata\S*|\.tbss\S*)\s+([0-9a-f]+)\s+(.*)$", line)
                if not match or match.group(1).startswith(".data.rel.ro") or int(match.group(2), 16) == 0:
                    continue
                name = match.group(3).split()[-1]
                if not name.startswith(("_ZTV", "_ZTI", "_ZTS", "DW.ref")):
                    wrong.append(f"{archive.name}: {name} in {match.group(1)}")
        self.assertFalse(wrong, "\n".join(wrong))

    def test_sources_of_policies_and_engine_hold_no_banned_word(self):
        wrong = []
        for path in sources(".h", ".cc", folders=["policies", "coordinator/engine", "coordinator/moves"]):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                code = line.split("//", 1)[0]
                if self.BANNED_WORDS.search(code):
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
        self.assertFalse(wrong, "\n".join(wrong))


class Simgpu(unittest.TestCase):
    def test_simgpu_exports_every_driver_call(self):
        names = exported(BUILD / "lib/lull/sim/libcuda.so.1")
        self.assertFalse(driver_exports() - names, "missing")
        extra = names - driver_exports()
        self.assertEqual(extra, {"simgpu_model_clock"})

    def test_every_hooked_call_is_implemented_or_listed_as_not_supported(self):
        # The build fails when an export is neither implemented nor listed; here: the list's
        # patterns all match something, and what is listed and hooked is visible at a glance.
        listed = patterns(ROOT / "tools/simgpu/driver/not_supported.txt")
        exports = driver_exports()
        for glob in listed:
            self.assertTrue(any(fnmatch.fnmatchcase(n, glob) for n in exports), f"{glob} matches nothing")
        for name in ("cuLaunchKernel", "cuGraphLaunch", "cuMemAlloc_v2", "cuLaunchKernelEx_ptsz"):
            self.assertFalse(any(fnmatch.fnmatchcase(name, glob) for glob in listed), name)


class Portability(unittest.TestCase):
    def test_the_shim_runs_nothing_when_loaded(self):
        library = str(BUILD / "lib/lull/liblull.so")
        sections = run("readelf", "-SW", library)
        sizes = {m.group(1): int(m.group(2), 16) for m in re.finditer(
            r"\]\s+(\.init_array|\.ctors|\.fini_array)\s+\S+\s+\S+\s+\S+\s+(\S+)", sections)}
        # frame_dummy and __do_global_dtors_aux of the C runtime start-up files are allowed.
        for section, size in sizes.items():
            self.assertLessEqual(size, 8, f"{section} holds more than the C runtime's own entry")

    def test_the_shim_has_no_heap_and_one_place_that_starts_a_thread(self):
        undefined = run("nm", "-D", "--undefined-only", str(BUILD / "lib/lull/liblull.so"))
        for name in ("thrd_create", "clone", "fopen", "malloc"):
            self.assertNotRegex(undefined, rf"\b{name}\b")
        # But where a process's memory moves or is shared.
        starting = {path.parent.name for path in sources(".cc", folders=["shim"]) if "pthread_create" in path.read_text()}
        self.assertLessEqual(starting, {"residence"})


class Installation(unittest.TestCase):
    """Each component can be installed without the others; `lull` is what tools/demo builds."""

    FILES = {"bin/lull", "bin/lulld", "bin/lull-play", "lib/lull/liblull.so", "etc/lull/lulld.json", "lib/systemd/system/lulld.service",
             "lib/sysusers.d/lull.conf"}
    # What is installed of these is looked at by tests/package.
    MANUAL = re.compile(r"share/(man|bash-completion|zsh|fish|doc/lull|lintian|lull/workloads)/.+")

    def install(self, prefix, *component):
        run("cmake", "--install", str(BUILD), *component, "--prefix", prefix)
        return {path.relative_to(prefix).as_posix() for path in pathlib.Path(prefix).rglob("*") if not path.is_dir()}

    def components(self):
        """Of each component, the files of the build that its rules copy."""
        found = {}
        scripts = [BUILD / "cmake_install.cmake"]
        for script in scripts:  # grows by what it includes
            text = script.read_text()
            scripts += map(pathlib.Path, re.findall(r'include\("([^"]+/cmake_install\.cmake)"\)', text))
            for part in re.split(r"(?=if\(CMAKE_INSTALL_COMPONENT STREQUAL)", text)[1:]:
                name = re.match(r'if\(CMAKE_INSTALL_COMPONENT STREQUAL "(\w+)"', part)[1]
                found.setdefault(name, set()).update(re.findall(r'file\(INSTALL [^)]*?FILES? "([^"]+)"', part))
        return found

    def test_every_file_is_in_a_component_that_is_known(self):
        self.assertLessEqual(set(self.components()), {"lull", "sim", "bench", "check"})

    def test_lull_is_installed_by_its_name(self):
        with tempfile.TemporaryDirectory(prefix="lull-install-") as prefix:
            files = self.install(prefix, "--component", "lull")
            self.assertEqual({file for file in files if not self.MANUAL.fullmatch(file)}, self.FILES)
            self.assertRegex(run(prefix + "/bin/lull", "--version"), r"^lull \d")

    def test_without_a_name_lull_and_the_simulated_gpu_are_installed(self):
        with tempfile.TemporaryDirectory(prefix="lull-install-") as prefix:
            everything = self.install(prefix)
            simulated = run(prefix + "/bin/lull", "run", "--sim", "--", "/bin/true")
        with tempfile.TemporaryDirectory(prefix="lull-install-") as prefix:
            named = self.install(prefix, "--component", "lull") | self.install(prefix, "--component", "sim")
        self.assertEqual(everything, named)
        self.assertIn("lib/lull/sim/libcuda.so.1", everything)
        self.assertEqual(simulated, "")

    def test_what_gpu_check_runs_is_carried_by_the_commands_of_its_page(self):
        page = (ROOT / "docs/hardware/README.md").read_text()
        commands = [line.strip() for line in page.splitlines() if line.startswith("    ") and "cmake --install" in line]
        named = {(folder, name) for path in (ROOT / "tools/gpu_check").glob("*.py")
                 for folder, name in re.findall(r'context\.program\(context\.(bin|check), "([^"]+)"\)', path.read_text())}
        self.assertIn(("bin", "lull-device-probe"), named)
        with tempfile.TemporaryDirectory(prefix="lull-carry-") as prefix:
            for command in commands:
                run("sh", "-ec", command.replace("build/release", str(BUILD)).replace("build/carry", prefix))
            files = {path.relative_to(prefix).as_posix() for path in pathlib.Path(prefix).rglob("*") if not path.is_dir()}
        # Without nvcc some programs are not built.
        self.assertLessEqual({f"{folder}/{name}" for folder, name in named if (BUILD / folder / name).exists()}, files)
        self.assertLessEqual({path.relative_to(BUILD).as_posix() for path in (BUILD / "check").iterdir()}, files)
        self.assertLessEqual({"lib/lull/check/libkernel_witness.so", "lib/lull/bench/libcuda.so.1"}, files)

    def test_the_demo_builds_all_that_is_installed_without_a_name(self):
        presets = json.loads((ROOT / "CMakePresets.json").read_text())["buildPresets"]
        self.assertEqual(next(preset["targets"] for preset in presets if preset["name"] == "demo"), ["lull_installed"])
        commands = set(run("ninja", "-C", str(BUILD), "-t", "commands", "lull_installed").split())
        self.assertIn("lib/lull/liblull.so", commands)
        self.assertNotIn("bin/lull-bench", commands)
        for component in ("lull", "sim"):
            for file in sorted(self.components()[component]):
                if not file.startswith(f"{BUILD}/") or file.startswith(f"{BUILD}/package/"):  # configured
                    continue
                inside = file.removeprefix(f"{BUILD}/")
                # The manual is made as a whole.
                made = f"{BUILD}/manual/made" if inside.startswith("manual/") else inside
                self.assertTrue(made in commands, f"{component}: {inside} is not made for it")


class Tidiness(unittest.TestCase):
    TOP = {"shim", "coordinator", "policies", "tools", "tests", "examples", "docs"}

    def test_the_top_level_folders_are_the_fixed_ones(self):
        listed = run("git", "-C", str(ROOT), "ls-files").splitlines()
        if not listed:
            self.skipTest("not a git checkout")
        folders = {line.split("/")[0] for line in listed if "/" in line}
        self.assertLessEqual(folders, self.TOP | {".ci"})

    def test_every_header_is_guarded_and_no_file_is_a_drawer(self):
        for path in sources(".h"):
            self.assertIn("#pragma once", path.read_text(), str(path))
        for path in sources(".h", ".cc"):
            self.assertNotIn(path.stem, {"utils", "util", "common", "misc", "helpers"}, str(path))

    def test_every_folder_says_what_it_is(self):
        for folder in ["shim", "coordinator", "policies", "tools", "tests", "examples", "tools/lull",
                       "tools/play", "tools/simgpu", "tools/cudart", "tools/bench", "tools/simulate", "tools/simulate/cluster", "policies/jobs", "docs"]:
            readme = ROOT / folder / "README.md"
            self.assertTrue(readme.exists(), f"{folder} has no README.md")

    def test_atomics_on_shared_memory_live_in_the_channel(self):
        for path in sources(".h", ".cc", folders=["coordinator/daemon", "coordinator/engine", "policies"]):
            self.assertNotIn("atomic_ref", path.read_text(), str(path))

    def test_no_path_of_one_machine_is_named(self):
        for path in sources(".h", ".cc", ".py", ".md", ".txt", ".json", ".sh", ".cu", ".cmake"):
            if path == pathlib.Path(__file__).resolve():
                continue
            self.assertNotRegex(path.read_text(errors="replace"), r"(?<![\w.])/work/|/root/", str(path))


class ReadmeLists(unittest.TestCase):
    """A README that lists files lists each source file of its folder, and none that is not there.

    A list is a table with a column `file` or `folder` (`file of `x/``: of that folder), or an indented list that begins
    with a name such as `x.h` or `x/`. `x`, `x.h` and `x.{h,cc}` stand for all files of that stem, `x/` for a folder, if no
    file in it is listed by itself. A name without a folder is in that of the name before it in its row. A folder with a
    README is that README's. In shim, coordinator, policies and tools every README has a list. Empty files need no row.
    """

    SUFFIXES = {".h", ".cc", ".c", ".cu", ".S", ".py", ".def"}
    HEAD = re.compile(r"(?:file|folder)(?: of `(.+)`)?")
    BEGINNING = re.compile(r"    [\w/]+(?:\.[\w{},]+|/)(?:, \S+)*(?:  |$)")
    ENTRY = re.compile(r" {4}( {2})?(\S.*?)(?:  |$)")

    def own_sources(self):
        """Of each README the source files that it is to list."""
        paths = [path for folder in FOLDERS if folder != "examples" for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
        found = {path: [] for path in paths if path.name == "README.md"}
        for path in paths:
            is_source = path.suffix in self.SUFFIXES or not path.suffix and os.access(path, os.X_OK)
            if is_source and path.stat().st_size:
                found[next(parent / "README.md" for parent in path.parents if parent / "README.md" in found)].append(path)
        return found

    def rows(self, readme):
        """Of each row of a list: its line, its names, and the folder that they are in."""
        lines = ["", *readme.read_text().splitlines()]
        for number, (before, line) in enumerate(zip(lines, lines[1:]), 1):
            if line.startswith("|"):
                cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
                if not before.startswith("|"):
                    heads = [self.HEAD.fullmatch(cell) for cell in cells]
                    continue
                for cell, head in zip(cells, heads):
                    if head:
                        yield number, re.findall(r"`(.+?)`", cell), readme.parent / (head[1] or "")
            elif line.startswith("    "):
                if not before.startswith("    "):
                    begun, around = self.BEGINNING.match(line), readme.parent
                entry = begun and self.ENTRY.match(line)
                if entry:
                    names = entry[2].split(", ")
                    yield number, names, around if entry[1] else readme.parent
                    if not entry[1]:  # what is indented further is in this folder
                        around = readme.parent / names[-1] if names[-1].endswith("/") else readme.parent

    def spelt_out(self, name):
        """x.{h,cc} as x.h and x.cc."""
        braces = re.search(r"{(.*?)}", name)
        return [one for part in braces[1].split(",") for one in self.spelt_out(name.replace(braces[0], part, 1))] if braces else [name]

    def listed(self, readme):
        """Of each name in a list of the README: its line, whether it is a folder's, and its path."""
        for number, names, folder in self.rows(readme):
            near = folder
            for name in [one for name in names for one in self.spelt_out(name)]:
                path = (folder if "/" in name else near) / name
                near = path if name.endswith("/") else path.parent
                yield number, name.endswith("/"), path

    def test_what_a_readme_lists_is_there(self):
        wrong = []
        for readme in self.own_sources():
            for number, is_folder, path in self.listed(readme):
                if not (path.is_dir() if is_folder else path.is_file() or any(path.parent.glob(path.name + ".*"))):
                    wrong.append(f"{readme.relative_to(ROOT)}:{number}: there is no {'folder' if is_folder else 'file'} "
                                 f"{path.relative_to(ROOT)}: write the name that it has, or drop the row")
        self.assertFalse(wrong, "\n" + "\n".join(wrong))

    def test_a_readme_that_lists_files_lists_each_of_its_folder(self):
        wrong = []
        for readme, paths in self.own_sources().items():
            listed = list(self.listed(readme))
            if not listed and (ROOT / "tests") in readme.parents:
                continue
            files = {path.with_suffix("") for _, is_folder, path in listed if not is_folder}
            folders = {path for _, is_folder, path in listed if is_folder} - {file.parent for file in files}
            for stem in dict.fromkeys(path.with_suffix("") for path in paths):
                if stem not in files and not folders & set(stem.parents):
                    name = stem.relative_to(readme.parent)
                    wrong.append(f"{readme.relative_to(ROOT)}: its lists lack {stem.relative_to(ROOT)}: add `{name}` and what it is for")
        self.assertFalse(wrong, "\n" + "\n".join(wrong))


class FailedTests(unittest.TestCase):
    """tests/run_ctest, on a project of made tests."""

    MADE = """
add_test(good sh -c "echo all well")
add_test("bad: long, with a comma" sh -c "seq 100; exit 3")
add_test(silent sh -c "exit 1")
add_test(late sh -c "echo late began; exec sleep 600")
set_tests_properties(late PROPERTIES TIMEOUT 1)
"""

    def run_ctest(self, folder, *arguments):
        done = subprocess.run([str(ROOT / "tests/run_ctest"), folder, "--test-dir", folder, "--output-on-failure", *arguments],
                              capture_output=True, text=True)
        _, found, behind = done.stdout.partition("The following tests FAILED:")
        return done.returncode, found, behind

    def test_what_failed_is_said_once_more_behind_the_summary(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "CTestTestfile.cmake").write_text(self.MADE)
            status, _, behind = self.run_ctest(folder)
            self.assertEqual(status, 8)
            self.assertNotIn("all well", behind)
            _, long, silent, late = behind.split("==== FAILED: ")
            self.assertEqual(long.split(), "bad: long, with a comma (the last 60 of 100 lines)".split() + [str(n) for n in range(41, 101)])
            self.assertEqual(silent.split(), ["silent"])
            self.assertEqual(late.split(), ["late", "late", "began"])

            status, found, _ = self.run_ctest(folder, "-R", "good")
            self.assertEqual((status, found), (0, ""))
            # Where ctest refuses its arguments, what the run before left is not shown.
            (pathlib.Path(folder) / "Testing/Temporary/LastTestsFailed.log").write_text("1:good\n")
            status, found, behind = self.run_ctest(folder, "--no-such-option", "--test-dir")
            self.assertNotEqual(status, 0)
            self.assertNotIn("FAILED", found + behind)


if __name__ == "__main__":
    unittest.main(verbosity=1)
