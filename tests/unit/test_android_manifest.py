"""Manifests of apps, in both of their forms."""

import random

import pytest

from adrenoc.native.android.app_check import Element, read_manifest
from tests.binary_manifest import binary_manifest

_TEXT = b"""<?xml version="1.0" encoding="utf-8"?>
<manifest xmlns:android="http://schemas.android.com/apk/res/android" package="org.x">
    <uses-sdk android:minSdkVersion="26" />
    <application android:extractNativeLibs="false">
        <!-- <uses-native-library android:name="commented.so" /> -->
        <uses-native-library android:name="libOpenCL.so" android:required="false" />
    </application>
</manifest>
"""
_EXPECTED = (
    Element(name="manifest", attributes={"package": "org.x"}),
    Element(name="uses-sdk", attributes={"minSdkVersion": "26"}),
    Element(name="application", attributes={"extractNativeLibs": "false"}),
    Element(name="uses-native-library", attributes={"name": "libOpenCL.so", "required": "false"}),
)
_BINARY = [
    ("manifest", {"package": "org.x"}),
    ("uses-sdk", {"minSdkVersion": 26}),
    ("application", {"extractNativeLibs": False}),
    ("uses-native-library", {"name": "libOpenCL.so", "required": False}),
]
# android.R.attr
_NUMBERS = {"name": 0x01010003, "minSdkVersion": 0x0101020C, "required": 0x0101028E}


def test_text():
    assert read_manifest(_TEXT) == _EXPECTED


@pytest.mark.parametrize("utf8", [False, True])
@pytest.mark.parametrize("hidden", [{}, _NUMBERS], ids=["names", "numbers"])
def test_the_form_in_an_apk(utf8, hidden):
    assert read_manifest(binary_manifest(_BINARY, utf8=utf8, hidden=hidden)) == _EXPECTED


@pytest.mark.parametrize("utf8", [False, True])
def test_long_strings(utf8):
    name = "é" * (200 if utf8 else 40000)
    (element,) = read_manifest(binary_manifest([("x", {"name": name})], utf8=utf8))
    assert element.attributes == {"name": name}


def test_what_is_no_manifest():
    whole = binary_manifest(_BINARY)
    for content in (b"", b"text", b"<manifest>", whole[:40], whole[:-4]):
        with pytest.raises(ValueError, match=r"no XML|damaged"):
            read_manifest(content)


def test_damage_is_an_error_or_another_manifest():
    whole = binary_manifest(_BINARY)
    rng = random.Random(1)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(whole))] = rng.randrange(256)
        try:
            read_manifest(bytes(damaged))
        except ValueError:
            refused += 1
    assert refused > 500
