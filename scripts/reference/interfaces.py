"""The C API from its header, the Java classes from their sources."""

import re
from collections.abc import Iterator
from pathlib import Path

from scripts.reference.tables import page

_HEADER = "adrenoc/native/include/adrenoc.h"
_JAVA = "adrenoc/native/java/src/org/adrenoc"
_MEMBER = re.compile(
    r"/\*\*(?P<text>.*?)\*/\s*(?P<sign>(?:@\w+\s+)*(?:public|boolean|void)\b[^{;=]*)[{;=]", re.S
)


def pages(root: Path) -> dict[str, str]:
    """Return the pages of the two interfaces."""
    return {"c-api.md": _c_api(root / _HEADER), "java.md": _java(root / _JAVA)}


def _c_api(header: Path) -> str:
    """Lay the header out by its blank lines: a comment, and what it is about."""
    text = header.read_text("utf-8")
    first = re.match(r"/\*(.*?)\*/", text, re.S)
    intro = _plain_comment(first[1]) if first else ""
    body = text[first.end() if first else 0 :]
    parts = [part for block in re.split(r"\n\s*\n", body) for part in _c_block(block.strip())]
    return page("C API", f"From `{_HEADER}`, which packages bring.", intro, *parts)


def _c_block(block: str) -> Iterator[str]:
    names = re.findall(r"\b(adrenoc_\w+)\s*\(", block) if "ADRENOC_API" in block else []
    types = re.findall(r"^\}? ?(?:typedef .*?)?(adrenoc_\w+);", block, re.M)
    names = names or types
    if not names or block.startswith("#"):
        return
    yield f"## {', '.join(dict.fromkeys(names[:3]))}"
    comment = re.match(r"/\*(.*?)\*/\s*", block, re.S)
    if comment:
        yield _plain_comment(comment[1])
        block = block[comment.end() :]
    yield f"```c\n{block.replace('ADRENOC_API ', '')}\n```"


def _plain_comment(text: str) -> str:
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in text.strip().splitlines()]
    shown = []
    for line in lines:
        shown.append(f"    {line.strip()}" if line.startswith("  ") else line.replace("<", "&lt;"))
    return "\n".join(shown)


def _java(folder: Path) -> str:
    parts = []
    for path in sorted(folder.glob("*.java")):
        text = path.read_text("utf-8")
        if re.search(r"^public (?:\w+ )*(?:class|interface) ", text, re.M):
            parts += [f"## {path.stem}", *_members(text)]
    intro = (
        "The package `org.adrenoc` of Android archives, as its sources document it; what has no "
        "comment there says by its name what it does."
    )
    return page("Java and Kotlin", intro, *parts)


def _members(text: str) -> Iterator[str]:
    for found in _MEMBER.finditer(text):
        sign = " ".join(re.sub(r"@\w+\s+", "", found["sign"]).split())
        yield f"```java\n{sign}\n```"
        comment = _plain_comment(found["text"])
        comment = re.sub(r"\{@(?:code|link)\s+([^}]*?)\s*\}", r"`\1`", comment)
        comment = re.sub(r"&lt;pre>(.*?)&lt;/pre>", r"\n\1\n", comment, flags=re.S)
        comment = re.sub(r"^@(param|return|throws) ", r"- \1 ", comment, flags=re.M)
        yield comment
