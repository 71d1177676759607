"""The config.json of a model on the Hugging Face hub: from the local cache, or fetched.

Fetching is done by a process of its own, which runs this very file: huggingface_hub reads its environment when it is
imported, and lmp has it offline by then; and a process can be ended when a server neither answers nor lets go.
No token is sent, and nothing but ``config.json`` is asked for.
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
"""Of a config.json. The largest that are known have some hundred KiB."""

ANSWER_SECONDS = 5
"""How long the hub may take to answer one request."""

TOTAL_SECONDS = 20
"""How long everything may take."""

GATED, MISSING, UNREACHABLE = "gated", "missing", "unreachable"

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_ASKED_OFFLINE = any(os.environ.get(name, "").lower() in ("1", "true", "yes", "on") for name in _OFFLINE)
"""What the user asked for: lmp sets the first of these itself before it imports transformers, later than this."""


@dataclass(frozen=True)
class Answer:
    """What the hub gave: a file in the local cache, or what was wrong: its kind, and the reason in words."""

    file: Path | None = None
    problem: str = ""
    reason: str = ""


def cached_config(model_id: str) -> Path | None:
    """The model's config.json in the local Hugging Face cache, as ``main`` was when it was fetched last."""
    from huggingface_hub import constants

    # The documented layout of the cache, read here: the library's own function takes five times as long to import.
    folder = Path(constants.HF_HUB_CACHE) / f"models--{model_id.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    file = folder / "snapshots" / revision / CONFIG_NAME
    return file if revision and file.is_file() else None


def fetch_config(model_id: str) -> Answer:
    """Fetch the model's config.json into the local cache, unless the user's environment says to stay offline."""
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
    """What the process of its own does."""
    from huggingface_hub import constants, errors, get_hf_file_metadata, hf_hub_download, hf_hub_url

    host = constants.ENDPOINT.partition("://")[2]
    try:
        # Asked first, because this does not try again and again where there is no network.
        url = hf_hub_url(model_id, CONFIG_NAME)
        size = get_hf_file_metadata(url, token=False, timeout=ANSWER_SECONDS).size
        if size is not None and size > MAX_BYTES:
            return {"problem": UNREACHABLE, "reason": f"its {CONFIG_NAME} has {size:,} bytes, which is no config"}
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
    """Let writing a longer file fail: a server may say one size and send another."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


if __name__ == "__main__":
    print(json.dumps(_fetch(sys.argv[1])))
