"""The config.json of a model on the Hugging Face hub: from the local cache, or fetched.

A separate process, which runs this file, fetches it, for two reasons. huggingface_hub reads its environment when it is
imported, and lmp has set it to offline by then. A process can be killed if a server neither answers nor closes the
connection. No token is sent, and no file other than ``config.json`` is requested.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CONFIG_NAME = "config.json"
MAX_BYTES = 4 * 2**20
"""Size limit of a config.json in bytes. The largest known ones have some hundred KiB."""

ANSWER_SECONDS = 5
"""Timeout of one request to the hub, in seconds."""

TOTAL_SECONDS = 20
"""Timeout of all requests together, in seconds."""

GATED, MISSING, UNREACHABLE = "gated", "missing", "unreachable"

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_ASKED_OFFLINE = any(os.environ.get(name, "").lower() in ("1", "true", "yes", "on") for name in _OFFLINE)
"""True if the user asks to stay offline. Read here, because lmp later sets the first variable itself."""


@dataclass(frozen=True)
class Answer:
    """The answer of the hub: a file in the local cache, or a kind of problem with the reason as text."""

    file: Path | None = None
    problem: str = ""
    reason: str = ""


def cached_config(model_id: str) -> Path | None:
    """The model's cached config.json, from the last fetch of ``main``; None if there is none."""
    from huggingface_hub import constants

    # Read by the documented layout of the cache: the library's function takes five times as long to import.
    folder = Path(constants.HF_HUB_CACHE) / f"models--{model_id.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    file = folder / "snapshots" / revision / CONFIG_NAME
    return file if revision and file.is_file() else None


def fetch_config(model_id: str) -> Answer:
    """Fetch the model's config.json into the local cache, unless the user's environment is offline."""
    if _ASKED_OFFLINE:
        return Answer(problem=UNREACHABLE, reason="not asked, because HF_HUB_OFFLINE is set")
    environment = {name: value for name, value in os.environ.items() if name not in _OFFLINE}
    environment |= {
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": str(ANSWER_SECONDS),
    }
    command = [sys.executable, "-P", __file__, model_id]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TOTAL_SECONDS)
        said = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return Answer(problem=UNREACHABLE, reason=f"no answer within {TOTAL_SECONDS} seconds")
    except (ValueError, IndexError):
        lines = done.stderr.strip().splitlines()
        return Answer(problem=UNREACHABLE, reason=lines[-1] if lines else f"ended with {done.returncode}")
    return Answer(Path(said["file"])) if "file" in said else Answer(None, said["problem"], said["reason"])


def _fetch(model_id: str) -> dict[str, str]:
    """Fetch the file, in the process of `fetch_config`. Returns ``file``, or ``problem`` and ``reason``."""
    from huggingface_hub import constants, errors, get_hf_file_metadata, hf_hub_download, hf_hub_url

    host = constants.ENDPOINT.partition("://")[2]
    try:
        # Requested first, because this does not retry without a network.
        url = hf_hub_url(model_id, CONFIG_NAME)
        size = get_hf_file_metadata(url, token=False, timeout=ANSWER_SECONDS).size
        if size is not None and size > MAX_BYTES:
            return {"problem": UNREACHABLE, "reason": f"its {CONFIG_NAME} has {size:,} bytes, which is not a config"}
        _write_no_more_than(MAX_BYTES)
        file = hf_hub_download(model_id, CONFIG_NAME, token=False, etag_timeout=ANSWER_SECONDS)
    except errors.GatedRepoError:
        return {"problem": GATED, "reason": "it is gated"}
    except errors.EntryNotFoundError:
        return {"problem": MISSING, "reason": f"it has no {CONFIG_NAME}"}
    except errors.RepositoryNotFoundError:
        return {"problem": MISSING, "reason": "it is not there, or not public"}
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            return {"problem": GATED, "reason": f"access is refused ({status})"}
        return {"problem": UNREACHABLE, "reason": f"{host} answered {status}"}
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        return {"problem": UNREACHABLE, "reason": f"{host}: {first or type(error).__name__}"}
    return {"file": file}


def _write_no_more_than(size: int) -> None:
    """Limit the size of written files, in bytes: a server may announce one size and send another."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


if __name__ == "__main__":
    print(json.dumps(_fetch(sys.argv[1])))
