"""The how-to's Java for onnxruntime in an app: it compiles, and names what packages hold.

onnxruntime itself is a fake with the signatures of onnxruntime-android 1.24."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import onnx
import pytest

from adrenoc.base.errors import DependencyError
from adrenoc.bundle.bundle import open_bundle
from adrenoc.bundle.onnx_context import PROVIDER as PROVIDER_NAME
from adrenoc.bundle.onnx_context import write_onnx_context
from adrenoc.bundle.tar import SUFFIX
from adrenoc.native.android.java_classes import QUICKLY, find_javac, java_folder
from adrenoc.native.android.package.aar import model_content, name_models
from adrenoc.native.android.runtime_build import PROVIDER
from tests.commands import run_program
from tests.runtime.phones import without_sources
from tests.runtime.programs import HERE

PAGE = HERE.parents[1] / "docs/how-to/onnxruntime.md"
PROGRAM = """
import ai.onnxruntime.*;
import android.content.Context;
import android.content.res.AssetManager;
import java.io.*;
import java.nio.file.*;
import java.util.*;

public class Sample {{
{sample}
  public static void main(String[] words) throws Exception {{
    AssetManager assets = new AssetManager(new File("none"));
    for (int i = 1; i < words.length; i += 2) {{
      assets.putCompressed(words[i], Files.readAllBytes(Paths.get(words[i + 1])));
    }}
    System.out.println(open(new Context(assets, new File(words[0]))));
  }}
}}
"""


def _compile(sample: str, folder: Path) -> list[str]:
    """The command that runs a program with the sample in it."""
    try:
        javac = find_javac()
    except DependencyError as error:
        pytest.skip(error.message)
    (folder / "Sample.java").write_text(PROGRAM.format(sample=sample))
    places = os.pathsep.join(str(one) for one in (HERE / "java/fakes", java_folder() / "stubs"))
    command = [javac, QUICKLY, "--release", "8", "-Xlint:all,-options", "-Werror"]
    command += ["-sourcepath", places, "-implicit:class", "-d", str(folder)]
    command.append(str(folder / "Sample.java"))
    subprocess.run(command, check=True)
    return [str(Path(javac).resolve().with_name("java")), "-cp", str(folder), "Sample"]


def test_the_sample_opens_what_packages_hold(phone_bundle, tmp_path):
    (sample,) = re.findall(r"^```java\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    name = phone_bundle.manifest.name
    # Whatever its file is called: the package has it by the model's name.
    bundle = open_bundle(shutil.copytree(phone_bundle.root, tmp_path / f"other{SUFFIX}"))
    (model,) = name_models([bundle])
    assert [path for path in model_content(model, 24, tmp_path) if "_ctx" in path] == []
    write_onnx_context(bundle.path)
    held = []
    for path, content in model_content(model, 24, tmp_path).items():
        if path.startswith("assets/"):
            file = tmp_path / Path(path).name
            file.write_bytes(content)
            held += [file.name, file]
    (app := tmp_path / "app").mkdir()
    command = _compile(sample.replace("mobilenet_v2", name), tmp_path)
    done = run_program([*command, app, *held], check=True)
    opened, provider, registered = done.stdout.splitlines()
    assert provider == f"{PROVIDER_NAME}{{cache_folder={app / 'cache/adrenoc'}}}"
    assert registered == f"[{PROVIDER}]"
    (node,) = onnx.load(opened).graph.node
    (named,) = (one.s.decode() for one in node.attribute if one.name == "ep_cache_context")
    packed = open_bundle(Path(opened).parent / named)
    assert packed.manifest == without_sources(phone_bundle.manifest)
