"""Which names a bundle may hold, by what is done with them.

A bundle may come from anywhere, and its names become paths, lines of CMake and Gradle, XML, and
words of commands that messages propose.  So each kind has one alphabet and a length, checked where
a manifest is read; who writes names makes them fit (`bundle_name`, `file_name`).
"""

import re
import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NameRule:
    """A kind of names: `pattern` matches whole ones, `expected` says the same in words."""

    pattern: str
    expected: str

    def allows(self, name: str) -> bool:
        """Return whether `name` is one of them."""
        return re.fullmatch(self.pattern, name) is not None


_MOST_LETTERS = 100
# No path is `.`, `..`, hidden or an option of a command, in any of its parts.
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}"

BUNDLE = NameRule(
    pattern=rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{_MOST_LETTERS - 1}}}",
    expected=f"a name of at most {_MOST_LETTERS} letters, digits, `_`, `.` and `-`",
)
PATH = NameRule(
    pattern=rf"(?=.{{1,1000}}\Z){_PART}(/{_PART}){{0,7}}",
    expected="the path of a file inside of the bundle, of letters, digits, `_`, `.`, `+` and `-`",
)
FOLDER = NameRule(pattern=rf"\.|{PATH.pattern}", expected="a folder inside of the bundle, or `.`")
IDENTIFIER = NameRule(
    pattern=r"[A-Za-z_][A-Za-z0-9_]{0,199}", expected="an identifier of C of at most 200 letters"
)
WORD = NameRule(
    pattern=r"[A-Za-z0-9_][A-Za-z0-9_.:+-]{0,199}",
    expected="a word of at most 200 letters, digits, `_`, `.`, `:`, `+` and `-`",
)
FILE = NameRule(
    # Whatever a file system takes, but for what moves a cursor or leaves the folder.
    pattern=r"(?!\.{1,2}\Z)[^/\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{1,255}",
    expected="the name of a file, without folders and control characters",
)
SHA256 = NameRule(pattern=r"[0-9a-f]{64}", expected="a SHA-256 in hexadecimal digits")


def bundle_name(text: str) -> str:
    """Return the name of a bundle that is made of `text`, such as a model file's stem."""
    plain = unicodedata.normalize("NFKD", text)
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "_", re.sub(r"[\u0300-\u036f]", "", plain))
    kept = kept.lstrip(".-")[:_MOST_LETTERS]
    return kept if kept.strip("_.-") else "model"


def file_name(text: str) -> str:
    """Return a file's name as a manifest may hold it: what cannot be printed becomes `_`."""
    allowed = "".join(letter if FILE.allows(letter) or letter == "." else "_" for letter in text)
    return allowed[:255] if FILE.allows(allowed[:255]) else "model"


# Words of Java and Kotlin: no package may be called so.
_KEYWORDS = re.compile(
    "abstract|as|assert|boolean|break|byte|case|catch|char|class|const|continue|default|do|double|"
    "else|enum|extends|false|final|finally|float|for|fun|goto|if|implements|import|in|instanceof|"
    "int|interface|is|long|native|new|null|object|package|private|protected|public|return|short|"
    "static|strictfp|super|switch|synchronized|this|throw|throws|transient|true|try|typealias|"
    "typeof|val|var|void|volatile|when|while"
)


def identifier(name: str) -> str:
    """Return an identifier for Java, C and CMake of `name`: small letters, digits and `_`."""
    kept = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    taken = not kept[:1].isalpha() or _KEYWORDS.fullmatch(kept)
    return f"m_{kept}" if taken else kept
