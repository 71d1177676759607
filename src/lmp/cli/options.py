"""The options that commands share: each option once, one record of them, and the decorator that fills the record.

A new shared option is a field of `Common`, and its name in the decorator of each command that takes it. Annotations of
this file are evaluated (no ``from __future__ import annotations``): `takes` hands them to typer.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmp.cli.output import note
from lmp.dtypes import CACHE_WORDS, WORDS

if TYPE_CHECKING:
    from lmp.analyze.session import Options

DEBUG = "lmp.debug"
"""Key in the context's meta data: true if --debug is given."""


class Engine(StrEnum):
    auto = "auto"
    trace = "trace"
    agent = "agent"


class Attention(StrEnum):
    sdpa = "sdpa"
    eager = "eager"


class Dtype(StrEnum):
    bfloat16 = "bfloat16"
    float16 = "float16"
    float32 = "float32"


class Phase(StrEnum):
    prefill = "prefill"
    decode = "decode"


class EffortName(StrEnum):
    low = "low"
    medium = "medium"
    high = "high"
    xhigh = "xhigh"
    max = "max"


ElementType = StrEnum("ElementType", list(WORDS))  # type: ignore[misc]
CacheType = StrEnum("CacheType", list(CACHE_WORDS))  # type: ignore[misc]


def remember_debug(context: typer.Context, value: bool) -> bool:
    """Store --debug in the context: the error handler sees the context and none of the command's parameters."""
    if value:
        context.meta[DEBUG] = True
    return value


SUBJECT = (
    "Model id (Qwen/Qwen3-8B), config.json, class path (torch.nn.Linear), or a class in a file of your own "
    "(my_model.py:Block)."
)
"""Help of the argument that names what a command is for."""

Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw a plot: .svg, .png, .html (offline page) or .pdf.")
]
PlotX = Annotated[str | None, typer.Option("--x", metavar="NAME", help="With --plot: what is on the x axis.")]
PlotY = Annotated[
    str | None, typer.Option("--y", metavar="NAME,NAME", help="With --plot: what is drawn, as intensity,latency.")
]

OnDevice = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="Device of time and memory; `lmp devices` lists them."),
]
ServingEngine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Predict what this engine launches: vllm, sglang, trtllm, transformers-eager, transformers-compiled, "
        "or a TOML file with a profile [default: eager mode beside vllm].",
    ),
]
Tp = Annotated[
    int, typer.Option("--tp", metavar="N", min=1, max=1024, help="GPUs that share each layer: figures are of one.")
]
Ep = Annotated[
    int, typer.Option("--ep", metavar="N", min=1, max=1024, help="Groups of these GPUs with different experts.")
]

ModelOrAgentModel = Annotated[
    str | None,
    typer.Option("--agent-model", "--model", metavar="NAME", help="Model of the agents [default: claude-sonnet-4-5]."),
]
"""The form of ``agent_model`` for a command whose --model does not name a class."""


@dataclass(frozen=True)
class Common:
    """The values of the shared options. A command that does not take an option has the option's default."""

    class_path: Annotated[str | None, typer.Argument(metavar="MODEL", help=SUBJECT)] = None
    module: Annotated[
        str | None, typer.Option("--module", metavar="CLASS", help="The class, in place of the argument.")
    ] = None

    # The sizes at which formulas are evaluated.
    phase: Annotated[
        Phase | None, typer.Option("--phase", help="prefill: no cache; decode: one new token on a cache.")
    ] = None
    batch_size: Annotated[str | None, typer.Option("--batch-size", "-b", metavar="N", help="Number of sequences.")] = (
        None
    )
    seq_len: Annotated[
        str | None, typer.Option("--seq-len", "-s", metavar="N", help="New tokens per sequence: 512, 8k.")
    ] = None
    cache_len: Annotated[
        str | None, typer.Option("--cache-len", "-c", metavar="N", help="Tokens already in the KV cache [default: 0].")
    ] = None
    element_type: Annotated[
        ElementType | None,
        typer.Option(
            "--dtype",
            help="Sets w_bytes, a_bytes and kv_bytes, in place of a checkpoint's own; w8a16: 1-byte weights, 2-byte "
            "activations. The module is executed in bfloat16 all the same.",
        ),
    ] = None
    kv_type: Annotated[
        CacheType | None,
        typer.Option("--kv-dtype", help="Sets kv_bytes, the bytes of an element of the KV cache [default: a_bytes]."),
    ] = None

    # How analyses are made, and where they are stored.
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine", help="Engine that derives the formulas; auto: trace, unless the settings ask for agents."
        ),
    ] = Engine.auto
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            metavar="DIR",
            help="Folder of the results [default: analysis_results in a project, else in the user's data folder].",
        ),
    ] = None
    transformers: Annotated[
        Path | None,
        typer.Option(
            "--transformers",
            metavar="DIR",
            help="Clone of transformers to read in place of the vendored or installed sources.",
        ),
    ] = None
    pytorch: Annotated[
        Path | None,
        typer.Option(
            "--pytorch", metavar="DIR", help="Clone of pytorch to read in place of the vendored or installed sources."
        ),
    ] = None
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A config.json to analyse at.")] = None
    model_id: Annotated[
        str | None,
        typer.Option("--model-id", metavar="ID", help="Model on the hub, org/name, whose config to analyse at."),
    ] = None
    attn: Annotated[Attention | None, typer.Option("--attn", help="Attention implementation [default: sdpa].")] = None
    dtype: Annotated[Dtype, typer.Option("--dtype", help="The dtype that the module is executed in.")] = Dtype.bfloat16
    inputs: Annotated[
        str | None,
        typer.Option(
            "--inputs",
            metavar="SHAPES",
            help="For your own class or one of torch.nn: the inputs of forward(), as in "
            '"x: float[batch_size, seq_len, 256]".',
        ),
    ] = None
    init: Annotated[
        str | None,
        typer.Option(
            "--init",
            metavar="ARGS",
            help="For your own class or one of torch.nn: arguments of the constructor, as in "
            '"hidden_size=256, bias=true".',
        ),
    ] = None
    path: Annotated[
        list[Path] | None,
        typer.Option("--path", metavar="DIR", help="Folder that holds your own packages [default: the current one]."),
    ] = None
    fresh: Annotated[bool, typer.Option("--fresh", help="Analyse again, even if a result is stored.")] = False
    no_atlas: Annotated[
        bool, typer.Option("--no-atlas", help="Do not answer from the atlas: use own results, or analyse.")
    ] = False

    # The limits of agents.
    agent_model: Annotated[
        str | None,
        typer.Option("--agent-model", metavar="NAME", help="Model of the agents [default: claude-sonnet-4-5]."),
    ] = None
    agent_effort: Annotated[
        EffortName | None,
        typer.Option("--agent-effort", help="How much the model of the agents thinks [default: high]."),
    ] = None
    fallback_model: Annotated[
        str | None,
        typer.Option("--fallback-model", metavar="NAME", help="Model to use while the first one is overloaded."),
    ] = None
    max_budget_usd: Annotated[
        float | None,
        typer.Option(
            "--max-budget-usd", min=0.01, metavar="USD", help="Cap in dollars, all agents together [default: 5]."
        ),
    ] = None
    max_turns: Annotated[
        int | None,
        typer.Option(
            "--max-turns", min=1, metavar="N", help="Cap of model answers, all agents together [default: 200]."
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", min=1, max=64, metavar="N", help="Number of agents at the same time [default: 2]."
        ),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=1, metavar="S", help="Time limit of one agent in seconds [default: 1800]."),
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With agents: show the plan, the prompts' sizes and the caps; spend nothing."),
    ] = False

    # What is printed.
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, everything else on stderr.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.", callback=remember_debug, is_eager=True)
    ] = False

    @property
    def results_folder(self) -> Path:
        """The given folder, else that of LMP_RESULTS, the project's own, or the user's."""
        if self.results is not None:
            return self.results
        from lmp.source.project import results_folder

        return results_folder()

    def said_results_folder(self) -> Path:
        """The results folder. A line on stderr names it if it is the user's, which no option and no project names."""
        from lmp.source.project import is_users_own

        if self.results is None and not self.quiet and is_users_own(self.results_folder):
            note(f"results: {self.results_folder}")
        return self.results_folder

    def options(self, agents: bool = False, said: bool = True) -> "Options":
        """How the command's analyses are made. ``agents``: true if agents can carry out the command.

        Without ``said``, no line names the results folder, and the engine is not checked: to look things up first.
        """
        from lmp.agents.environment import Choice, chosen_engine
        from lmp.atlas.asking import AtlasOptions, atlas_folder
        from lmp.errors import UsageError

        if self.engine is Engine.agent and not agents and said:
            raise UsageError(
                "--engine agent is for analyze-module and expand only\n"
                "run one of these with it, then this command without it"
            )
        choice = chosen_engine(str(self.engine)) if agents else Choice("trace")
        return AtlasOptions(
            atlas=atlas_folder(self.no_atlas),
            results=self.said_results_folder() if said else self.results_folder,
            transformers=self.transformers,
            pytorch=self.pytorch,
            config_file=self.config,
            attention=None if self.attn is None else str(self.attn),
            dtype=str(self.dtype),
            fresh=self.fresh,
            engine=choice.engine,
            why_engine=choice.why,
            model_id=self.model_id,
            inputs=self.inputs,
            init=self.init,
            paths=tuple(self.path or ()),
        )


# Names of fields that commands take together, in the order of the help page.
ONE_CLASS = ("class_path", "module")
SIZES = ("phase", "batch_size", "seq_len", "cache_len", "element_type", "kv_type")
FOLDERS = ("results", "transformers", "pytorch")
CONFIG = ("config", "model_id", "attn", "dtype")
OWN_CLASS = ("inputs", "init", "path")
AGENTS = ("agent_model", "agent_effort", "fallback_model", "max_budget_usd", "max_turns", "concurrency", "timeout")
PRINTED = ("as_json", "quiet", "debug")


def takes(*names: str | EllipsisType, **forms: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command: typer reads the named shared options, the command gets one `Common` as ``common``.

    ``names`` are fields of `Common` in the order of the help page. ``...`` is the place of the command's own
    parameters; without it they stand first. An own parameter that is named stands where it is named. ``forms`` maps
    a field to the annotation that this command uses in its place.
    """
    shared = {
        field.name: inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=forms.get(field.name, field.type),
        )
        for field in fields(Common)
        if field.name in names
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = {
            name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(command, eval_str=True).parameters.items()
            if name != "common"
        }
        both = own.keys() & shared.keys()
        unknown = {name for name in (*names, *forms) if name is not ...} - own.keys() - shared.keys()
        if both or unknown:
            raise TypeError(f"{command.__name__}: not one option each: {sorted(both | unknown)}")
        unnamed = [name for name in own if name not in names]
        ordered: list[str] = [] if ... in names else unnamed
        for name in names:
            ordered += unnamed if name is ... else [name]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            common = Common(**{name: given.pop(name) for name in shared})
            command(common, **given)

        parameters = [(own | shared)[name] for name in ordered]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def one_of(what: str, named: str | None, option: str, other: str | None) -> str | None:
    """The name that is given as an argument or with ``option``. Raises UsageError if two different ones are given."""
    from lmp.errors import UsageError

    if named is not None and other is not None and named != other:
        raise UsageError(f"two {what} are given: {named} and, with {option}, {other}\ngive one")
    return named or other


def drawn(plot: Path | None, x: str | None, y: str | None) -> tuple[str, ...]:
    """The names of ``--y``. Raises UsageError for a file that is no picture, and for axes without a file."""
    from lmp.errors import UsageError

    if plot is None:
        given = [option for option, value in (("--x", x), ("--y", y)) if value is not None]
        if given:
            raise UsageError(f"{given[0]} is of a plot\ngive --plot FILE too, as in --plot plot.svg")
        return ()
    from lmp.predict.charts import plottable

    plottable(plot)
    return tuple(name.strip() for name in (y or "").split(",") if name.strip())


def engines(common: Common, named: str | None) -> tuple[Common, str | None]:
    """``--engine`` of a command that predicts: the name of a profile; or the engine that derives formulas."""
    if named in set(Engine):
        return replace(common, engine=Engine(named)), None
    return common, named


def reports_folder(given: Path | None) -> Path:
    """The given folder for reports, else the project's own, or the user's. Raises UsageError if it is a file."""
    from lmp.errors import UsageError
    from lmp.source import project

    if given is not None and given.exists() and not given.is_dir():
        raise UsageError(f"--reports {given} is a file, not a folder\ngive another folder")
    return given if given is not None else project.reports_folder()
