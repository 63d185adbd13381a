"""What a server answers to a request that it refuses."""

from __future__ import annotations

from typing import Any


class RequestError(Exception):
    """A request that is refused: the status of HTTP, and the field that is wrong."""

    def __init__(self, message: str, *, status: int = 400, field_name: str = "", code: str = ""):
        super().__init__(message)
        self.status, self.field_name, self.code = status, field_name, code

    def to_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        about = {"param": self.field_name or None, "code": self.code or None}
        return {"error": {"message": str(self), "type": kind, **about}}
