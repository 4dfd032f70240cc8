"""What travels to a machine with a GPU: how large it is."""

import os
import pathlib

MOST_BYTES = 64 << 20
# What runs there, in a build folder and in an installed one; objects and archives stay behind.
FOLDERS = ("bin", "lib/lull", "check", "share")


def carried_bytes(build):
    total = 0
    for part in FOLDERS:
        for folder, _, files in os.walk(pathlib.Path(build) / part):
            for name in files:
                path = pathlib.Path(folder) / name
                if not path.is_symlink():
                    total += path.stat().st_size
    return total
