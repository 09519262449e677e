"""Every relative link in Markdown files must lead to a file, and every anchor to a heading."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def anchors(text):
    """Headings as GitHub names them; code blocks have none."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    found = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", text, flags=re.M):
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(plain.replace(" ", "-"))
    return found


def main():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    problems, links = [], 0
    for name in listed.stdout.split():
        page = ROOT / name
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            path, _, anchor = target.partition("#")
            to = (page.parent / path).resolve() if path else page
            if not to.exists():
                problems.append(f"{name}: {target}: no such file")
            elif anchor and anchor not in anchors(to.read_text(encoding="utf-8")):
                problems.append(f"{name}: {target}: no such heading")
    if problems:
        sys.exit("\n".join(problems))
    print(f"{links} links lead somewhere")


main()
