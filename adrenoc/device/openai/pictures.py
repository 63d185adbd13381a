"""Pictures in messages, as clients of OpenAI's API send them: in the message itself.

What is elsewhere is not fetched: a request must not have this machine ask others.
"""

from __future__ import annotations

import io
from base64 import b64decode
from typing import Any

from adrenoc.device.openai.errors import RequestError

MOST_BYTES = 16 << 20
MOST_PIXELS = 48 << 20
"""Of a picture: more than phones' cameras make, and 200 MB of memory while it is made smaller."""
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


def read_picture(part: Any, where: str) -> bytes:
    """Return the file that a part of a message holds (`image_url`); pixels are not read yet.

    Raises:
        RequestError: it holds none, one that is too large, or an address.
    """

    def refuse(why: str) -> RequestError:
        return RequestError(f"{where} {why}", field_name=where)

    said = part.get("image_url")
    url = said.get("url") if isinstance(said, dict) else said
    if not isinstance(url, str):
        raise refuse("has no image_url with an url")
    head, _, body = url.partition(",")
    if not head.startswith("data:"):
        raise refuse(
            "names a picture elsewhere, and nothing is fetched: send data:image/png;base64,..."
        )
    try:
        content = b64decode(body, validate=True) if head.endswith(";base64") else b""
    except ValueError:
        content = b""
    if not content:
        raise refuse("is a picture that is not in base64")
    if len(content) > MOST_BYTES:
        raise refuse(f"has {len(content)} bytes, expected up to {MOST_BYTES}")
    if not 0 < _count_pixels(content) <= MOST_PIXELS:
        raise refuse(f"is no picture of {', '.join(_FORMATS)} of up to {MOST_PIXELS} pixels")
    return content


def _count_pixels(content: bytes) -> int:
    """Return what the head of a picture says; 0 where there is none, or of far too many."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            return image.width * image.height
    except Exception:  # noqa: BLE001 - readers raise whatever they like
        return 0
