"""The files of this checkout, copies of it, and services that run from elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.paths import ROOT

# Paths git would ignore, for a tree without git, as an unpacked source distribution is.
IGNORED_FOLDERS = {".git", ".hypothesis", ".venv", "__pycache__", "build", "dist", "htmlcov", "node_modules"}
IGNORED_ENDINGS = (".egg-info", ".nbc", ".nbi", ".pyc", "_cache")
# Prints the address of a service without products, as `hushprice serve --json` does. Nothing needs to be compiled.
BARE_SERVICE = """
import json, socket, uvicorn
from hushprice.service import Service, Store
from hushprice.service.http.app import create_app
from hushprice.service.settings import Settings

listener = socket.create_server(("127.0.0.1", 0))
print(json.dumps({"url": "http://127.0.0.1:%d" % listener.getsockname()[1]}), flush=True)
settings = Settings(shop=True, shop_key="hp_device_for_tests_only", log_format="none")
app = create_app(Service(Store.open("sqlite:///bare.db")), settings)
uvicorn.Server(uvicorn.Config(app, log_config=None)).run(sockets=[listener])
"""


def git(*arguments: str | Path) -> str:
    """Run git, whoever owns the checkout, and return what it prints."""
    command = ["git", "-c", "safe.directory=*", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def checkout_files() -> list[str]:
    """Paths, relative to the root, of the files that git tracks or would track."""
    if (ROOT / ".git").exists():
        listed = git("-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
        return sorted(name for name in set(listed) if os.path.lexists(ROOT / name))
    every = (path.relative_to(ROOT) for path in ROOT.rglob("*") if not path.is_dir())
    return sorted(str(path) for path in every if not any(map(_ignored, path.parts)) and path.name != "PKG-INFO")


def _ignored(part: str) -> bool:
    return part in IGNORED_FOLDERS or part.endswith(IGNORED_ENDINGS)


def copy_checkout(folder: Path) -> Path:
    """Copy the files of the checkout as they are; symbolic links stay links."""
    for name in checkout_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def new_environment(folder: Path) -> Path:
    """Make a virtual environment without hushprice that sees the dependencies installed here; return its Python.

    A ``.pth`` file names the folder of the dependencies. Python does not read the ``.pth`` files of that folder, so the
    editable installation of this checkout stays out of sight.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    bin = folder / ("Scripts" if os.name == "nt" else "bin")
    python = bin / "python"
    script = "import sysconfig; print(sysconfig.get_path('purelib'))"
    printed = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True, timeout=60).stdout
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(printed.strip()) / "dependencies.pth").write_text("\n".join(sorted(dependencies)) + "\n")
    return python


def pip(*arguments: str | Path) -> None:
    """Run pip without any package index, with the build tools that are installed here."""
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def environment(*first: Path) -> dict[str, str]:
    """The variables of this process, with some folders first on ``PYTHONPATH`` and those of this checkout off it."""
    paths = [Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    elsewhere = [entry for entry in paths if not entry.resolve().is_relative_to(ROOT)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*first, *elsewhere]))}


def package_folder(python: Path, *path: Path) -> Path:
    """The folder from which a Python imports hushprice; never that of this checkout."""
    command = [str(python), "-c", "import hushprice; print(hushprice.__file__)"]
    done = subprocess.run(command, env=environment(*path), check=True, capture_output=True, text=True, timeout=60)
    folder = Path(done.stdout.strip()).resolve().parent
    assert not folder.is_relative_to(ROOT)
    return folder


def copy_kernel_cache(package: Path) -> None:
    """Spare a copy of the package the compilation of what is compiled here; Numba compares the times of the sources."""
    kernels = ROOT / "src" / "hushprice" / "kernels"
    for source in kernels.rglob("*.py"):
        copied = package / "kernels" / source.relative_to(kernels)
        if not copied.exists() or source.read_bytes() != copied.read_bytes():
            continue
        cache = copied.parent / "__pycache__"
        cache.mkdir(exist_ok=True)
        for cached in (source.parent / "__pycache__").glob(f"{source.stem}.*.nb[ci]"):
            shutil.copy(cached, cache)
        times = source.stat()
        os.utime(copied, ns=(times.st_atime_ns, times.st_mtime_ns))


@contextmanager
def service_from(command: list[str | Path], folder: Path, *path: Path) -> Iterator[str]:
    """Run a command that starts a service and prints its address as JSON; yield the address."""
    with open(folder / "errors.txt", "w+") as errors:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder, env=environment(*path), stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            errors.seek(0)
            assert line, errors.read()[-4000:]
            yield str(json.loads(line)["url"])
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
