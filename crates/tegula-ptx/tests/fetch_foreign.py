#!/usr/bin/env python3
"""Fetches the kernels of foreign.json from package registries, as .cu and .ptx files.

    fetch_foreign.py OUT [NAME ...]

Packages are downloaded by pip and cargo as they are configured, and unpacked in OUT/packages. For
each entry, OUT/NAME.cu or OUT/NAME.ptx is written: copied ("ptx", "nvrtc"), taken out of a Python
string ("nvrtc" with "strings"), or compiled without a GPU by Numba or Triton, each in a virtual
environment under OUT. OUT/status.json has one object per entry: the file, its include folders, or
the error. Arrays with given values become OUT/NAME.ARRAY.npy. Existing packages and environments
are reused.
"""

import ast
import json
import os
import re
import shutil
import string
import struct
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What compiles Python kernels; the versions are as fixed as those of the packages.
COMPILERS = {"numba": "numba-cuda[cu13]==0.30.4", "triton": "triton==3.9.0"}
NPY_TYPES = {
    "u8": ("|u1", "B"), "i8": ("|i1", "b"), "i32": ("<i4", "i"), "u32": ("<u4", "I"),
    "i64": ("<i8", "q"), "u64": ("<u8", "Q"), "f32": ("<f4", "f"), "f64": ("<f8", "d"),
}  # fmt: skip


def run(*command, **options):
    """Runs a command; its output is part of the error if it fails."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-1500:]}")
    return done.stdout


# Packages


def pypi_package(name, version, folder):
    """Downloads and unpacks a wheel or a source distribution."""
    with tempfile.TemporaryDirectory() as download:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        run(*pip, "--dest", download, f"{name}=={version}")
        (archive,) = Path(download).iterdir()
        if archive.suffix == ".whl":
            zipfile.ZipFile(archive).extractall(folder)
            return
        with tarfile.open(archive) as tar, tempfile.TemporaryDirectory() as unpacked:
            tar.extractall(unpacked, filter="data")
            (root,) = Path(unpacked).iterdir()
            shutil.copytree(root, folder)


def crates_package(name, version, folder):
    """Downloads a crate: as the dependency of an empty package, whose metadata has its path."""
    with tempfile.TemporaryDirectory() as package:
        manifest = Path(package, "Cargo.toml")
        manifest.write_text(
            '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n\n[dependencies]\n'
            f'{name} = {{ version = "={version}", default-features = false }}\n\n[workspace]\n'
        )
        Path(package, "src").mkdir()
        Path(package, "src", "lib.rs").touch()
        metadata = run("cargo", "metadata", "--format-version=1", f"--manifest-path={manifest}")
        paths = [p["manifest_path"] for p in json.loads(metadata)["packages"] if p["name"] == name]
        shutil.copytree(Path(paths[0]).parent, folder)


def package_folder(out, entry):
    """The unpacked package of an entry, downloaded if it is not there yet."""
    folder = out / "packages" / f"{entry['package']}-{entry['version']}"
    if not folder.exists():
        print(f"downloading {entry['package']} {entry['version']}", flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        fetch = {"pypi": pypi_package, "crates": crates_package}[entry["registry"]]
        fetch(entry["package"], entry["version"], folder)
    return folder


def environment(out, requirement):
    """The Python of a virtual environment with this package."""
    folder = out / ("env-" + re.split(r"[\[=]", requirement)[0])
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"installing {requirement}", flush=True)
        run(sys.executable, "-m", "venv", folder)
        run(python, "-m", "pip", "install", "--quiet", requirement)
        (folder / "complete").touch()
    return python


# Sources


def python_strings(path, markers):
    """The string constants of a Python file that contain the markers, one each, joined."""
    constants = [
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    parts = []
    for marker in markers:
        found = [text for text in constants if marker in text]
        if len(found) != 1:
            raise RuntimeError(f"{path.name}: {len(found)} strings contain {marker!r}; expected 1")
        parts += found
    return "".join(parts)


def substitute(text, entry):
    """Fills in `values`: `%(NAME)s` or `$NAME`, as `format` says."""
    values = entry.get("values", {})
    match entry.get("format", "none"):
        case "percent":
            return text % values
        case "dollar":
            return string.Template(text).substitute(values)
        case _:
            return text


def python_definitions(path, names):
    """The source of functions and assignments of a Python file, nested ones too, undecorated."""
    source = path.read_text()
    lines = source.splitlines()
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            name = node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = getattr(target, "id", None)
        else:
            continue
        if name in names:
            text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            found.setdefault(name, textwrap.dedent(text))
    missing = [name for name in names if name not in found]
    if missing:
        raise RuntimeError(f"{path.name}: no definition of {', '.join(missing)}")
    return found


def python_module(path, entry):
    """A module: the entry's prelude, the definitions it takes, its epilogue."""
    decorator = {"numba": "", "triton": "@triton.jit\n"}[entry["how"]]
    parts = [entry.get("prelude", "")]
    for name, text in python_definitions(path, entry["take"]).items():
        parts.append((decorator if text.startswith("def ") else "") + text)
    parts.append(entry.get("epilogue", ""))
    return "\n\n".join(parts) + "\n"


def write_array(path, array):
    """Writes a one-dimensional .npy file."""
    descr, code = NPY_TYPES[array["type"]]
    values = array["values"]
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({len(values)},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    data = struct.pack(f"<{len(values)}{code}", *values)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


# Compilers, each run by the Python of its environment


def compile_numba(entry, module):
    """PTX of a kernel of a module, by Numba."""
    from types import SimpleNamespace

    from numba import cuda, types

    # Device functions are compiled for the current device, which needs a driver to ask.
    cuda.dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=(8, 0))
    namespace = {**vars(types), **vars(module)}
    kernel = eval(entry.get("expression", entry["kernel"]), namespace)  # noqa: S307
    signature = eval(f"({entry['signature']},)", namespace)  # noqa: S307
    ptx, _ = cuda.compile_ptx(kernel, signature, cc=(8, 0), lineinfo=True)
    return ptx, {}


def compile_triton(entry, module):
    """PTX of a kernel of a module, by Triton; and its bytes of shared memory."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(module, entry["kernel"])
    names = kernel.arg_names
    constants = {(names.index(name),): value for name, value in entry["constants"].items()}
    signature = {name: entry["signature"].get(name, "constexpr") for name in names}
    divisible = [["tt.divisibility", 16]]
    attributes = {(names.index(name),): divisible for name in entry.get("aligned", [])}
    source = ASTSource(kernel, signature, constants, attributes)
    options = {"num_warps": entry["block"][0] // 32, "num_stages": entry.get("stages", 2)}
    compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options)
    return compiled.asm["ptx"], {"shared": compiled.metadata.shared}


def compile_main(entry_path, module_path, ptx_path):
    """Compiles one entry; called in a process of its own."""
    import importlib.util

    entry = json.loads(Path(entry_path).read_text())
    spec = importlib.util.spec_from_file_location("foreign", module_path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["foreign"] = module
    spec.loader.exec_module(module)
    ptx, facts = {"numba": compile_numba, "triton": compile_triton}[entry["how"]](entry, module)
    Path(ptx_path).write_text(ptx)
    print(json.dumps(facts))


def compiled(out, entry, path, target):
    """Writes the PTX of a Numba or Triton entry."""
    python = environment(out, COMPILERS[entry["how"]])
    with tempfile.TemporaryDirectory() as folder:
        # The module is kept: line numbers of the PTX refer to it.
        module = out / f"{entry['file']}.py"
        module.write_text(python_module(path, entry))
        description = Path(folder, "entry.json")
        description.write_text(json.dumps(entry))
        env = {**os.environ, "TRITON_CACHE_DIR": folder}
        arguments = [description, module.resolve(), target.resolve()]
        printed = run(python, Path(__file__).resolve(), "--compile", *arguments, env=env)
        return json.loads(printed.strip().splitlines()[-1])


def fetch(out, entry):
    """Fetches one entry; returns its object for status.json."""
    folder = package_folder(out, entry)
    path = folder / entry["path"]
    for name, array in entry.get("arrays", {}).items():
        write_array(out / f"{entry['file']}.{name}.npy", array)
    if entry["how"] in ("numba", "triton"):
        target = out / f"{entry['file']}.ptx"
        return {"file": target.name, **compiled(out, entry, path, target)}
    if entry["how"] == "ptx":
        shutil.copyfile(path, out / f"{entry['file']}.ptx")
        return {"file": f"{entry['file']}.ptx"}
    target = out / f"{entry['file']}.cu"
    if "strings" in entry:
        target.write_text(substitute(python_strings(path, entry["strings"]), entry))
    else:
        shutil.copyfile(path, target)
    includes = [folder / include for include in entry.get("includes", [])]
    return {"file": target.name, "includes": [str(i.relative_to(out)) for i in includes]}


def main():
    if sys.argv[1:2] == ["--compile"]:
        compile_main(*sys.argv[2:])
        return
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out, names = Path(sys.argv[1]), sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    entries = json.loads((HERE / "foreign.json").read_text())
    unknown = set(names) - {entry["file"] for entry in entries}
    if unknown:
        sys.exit(f"not in foreign.json: {', '.join(sorted(unknown))}")
    status_path = out / "status.json"
    status = json.loads(status_path.read_text()) if status_path.exists() else {}
    for entry in entries:
        if names and entry["file"] not in names:
            continue
        try:
            status[entry["file"]] = fetch(out, entry)
            print(f"{entry['file']}: {status[entry['file']]['file']}", flush=True)
        except Exception as error:  # One package that fails must not hide the others.
            status[entry["file"]] = {"error": str(error)}
            print(f"{entry['file']}: {error}", flush=True)
        status_path.write_text(json.dumps(status, indent=2) + "\n")
    failed = [name for name, facts in status.items() if "error" in facts]
    print(f"{len(status) - len(failed)} fetched, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
