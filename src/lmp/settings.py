"""The user's settings, in a separate file that belongs to no project and no analysed tree.

    engine = "agent"          # what `--engine auto` means where a credential is set; else trace
    model = "..."             # as --agent-model
    effort = "high"           # as --agent-effort
    max_budget_usd = 2.5      # as --max-budget-usd; and so on
    atlas = false             # as --no-atlas

The file is ``lmp/settings.toml`` in the system's folder for user settings. LMP_SETTINGS names another file.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lmp.errors import UsageError

VARIABLE = "LMP_SETTINGS"

Effort = Literal["low", "medium", "high", "xhigh", "max"]
"""How much a model thinks; models that know no effort are not told it."""


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    engine: Literal["trace", "agent"] = "trace"
    model: str | None = None
    fallback_model: str | None = None
    effort: Effort | None = None
    max_budget_usd: float | None = Field(default=None, gt=0)
    max_turns: int | None = Field(default=None, ge=1)
    concurrency: int | None = Field(default=None, ge=1)
    timeout: float | None = Field(default=None, gt=0)
    atlas: bool = True
    """False: commands never answer from the atlas."""


def settings_file() -> Path:
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    from platformdirs import user_config_path

    return user_config_path("lmp") / "settings.toml"


def read_settings() -> Settings:
    """The settings, or their defaults where there is no file. Raises UsageError for a file that is none."""
    file = settings_file()
    try:
        return Settings.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        known = ", ".join(Settings.model_fields)
        raise UsageError(f"{file}: {where}: {first['msg']}\nsettings are: {known}") from error
    except (OSError, ValueError) as error:
        raise UsageError(f'{file} cannot be read: {error}\nit is TOML, as in: engine = "agent"') from error
