"""The server of this machine's own device leaves nothing behind."""

import os

import pytest

from adrenoc import native
from adrenoc.device.remote import describe
from adrenoc.lab.tune.tuner import local_server


def test_the_folder_of_a_session_goes_with_it(tmp_path, monkeypatch):
    """The process ends after that, and nothing of it would remove the folder any more."""
    if not native.use_software_device():
        pytest.skip("no software OpenCL device: pip install '.[opencl]'")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with local_server() as address:
        assert describe(address)
    assert os.listdir(tmp_path) == []  # noqa: PTH208
