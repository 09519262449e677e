"""Whether zips of functions may be deployed.

    zips.py FOLDER FUNCTION...

FOLDER has FUNCTION/bootstrap.zip, as `cargo lambda build --output-format zip` makes them. Each must be under 10 MB and hold one
arm64 program `bootstrap` that asks for no symbol of a C library after 2.34, which is Amazon Linux 2023's.
"""

import re
import sys
import zipfile
from pathlib import Path

MOST_MB, NEWEST = 10, (2, 34)
# e_machine of an ELF header.
AARCH64 = 183


def looked_at(path):
    """Megabytes of the zip, the highest version of the C library, and what is wrong."""
    size = path.stat().st_size / 1e6
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if names != ["bootstrap"]:
            return size, None, [f"it holds {', '.join(names)}"]
        mode = archive.getinfo("bootstrap").external_attr >> 16
        program = archive.read("bootstrap")
    problems = []
    if size >= MOST_MB:
        problems.append(f"it has {size:.1f} MB, {MOST_MB} are allowed")
    if program[:4] != b"\x7fELF" or int.from_bytes(program[18:20], "little") != AARCH64:
        problems.append("it is no arm64 program")
    if mode & 0o111 == 0:
        problems.append("it may not be run")
    # Versions that a program asks for are in its dynamic strings, each ended by a zero byte.
    found = re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)", program)
    newest = max(((int(major), int(minor)) for major, minor in found), default=None)
    if newest is None:
        problems.append("it names no version of the C library")
    elif newest > NEWEST:
        problems.append(f"it needs a C library of version {newest[0]}.{newest[1]}")
    return size, newest, problems


def main():
    folder, wrong = Path(sys.argv[1]), []
    print("| Function | Zip | C library at least |\n| --- | ---: | ---: |")
    for name in sys.argv[2:]:
        size, newest, problems = looked_at(folder / name / "bootstrap.zip")
        print(f"| `{name}` | {size:.1f} MB | {'.'.join(map(str, newest or ()))} |")
        wrong += [f"{name}: {it}" for it in problems]
    if wrong:
        sys.exit("\n".join(wrong))


main()
