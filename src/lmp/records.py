"""The pydantic records: the only definition of lmp's files. ``schemas/`` is generated from them.

Formulas are stored as text (see ``lmp.formula`` for the language). A record does not check their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

SCHEMA_VERSION = 1
UNIVERSAL = ("w_bytes", "a_bytes", "kv_bytes")
"""Variables that every formula may use without declaration: bytes per element of weights, activations, KV cache."""

MATMUL_CATEGORIES = frozenset({"matmul", "attention", "convolution", "grouped_matmul"})
"""Categories of kernels that are summed in ``matmul_flops``."""

CATEGORIES = (
    "matmul", "attention", "convolution", "grouped_matmul", "elementwise", "activation", "normalization", "softmax",
    "reduction", "pooling", "gather", "scatter", "sort", "copy", "factory", "call", "module",
)  # fmt: skip
"""Categories of kernels. ``call`` is a call of a plain function, which has no cost itself. ``module`` is a module call.
"""

OWN_ENGINE = "trace"
"""The engine with which lmp derives formulas. Its results can be made again, and give the exact line of each operator.
"""

HANDED_IN = ("agent", "submitted")
"""Engines of submitted analyses that passed the gate. Each phase that runs must be judged."""

KNOWN_ENGINES = (OWN_ENGINE, *HANDED_IN)
"""Engines whose analyses have a fingerprint. Analyses of any other engine are used unchanged."""

Status = Literal["verified", "failed", "unverified"]

_BEST_FIRST: tuple[Status, ...] = ("verified", "unverified", "failed")


def worst(statuses: Iterable[Status]) -> Status:
    """The worst of some statuses: failed, else unverified, else verified. Raises ValueError for none."""
    return max(statuses, key=_BEST_FIRST.index)


ClassPath = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
Formula = Annotated[str, Field(min_length=1)]


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Source(Record):
    """Where the class stands. ``file`` is relative to the tree's root; ``lines`` is the span of ``forward()``."""

    file: str
    lines: tuple[int, int]
    class_lines: tuple[int, int] | None = None
    distribution: str
    version: str
    sha256: str


class MemoryAccess(Record):
    """Bytes read and written, as formulas."""

    read: Formula
    write: Formula


class ConfigOrigin(Record):
    """Which config an analysis is of: ``name`` is "default", or the part of the results folder after the ``@``."""

    name: str
    origin: str
    sha256: str | None = None


DEFAULT_CONFIG = ConfigOrigin(name="default", origin="the class's defaults")


class Given(Record):
    """How a class that is in no model was constructed and called, as ``--init`` and ``--inputs`` say it."""

    inputs: str
    init: str = ""
    live: bool = Field(default=False, description="an instance was analysed: its own sizes are plain numbers")


class Decision(Record):
    """A line that decides on the values of a tensor, and what it was answered on the path that was analysed."""

    file: str
    line: int
    code: str
    taken: list[str] = Field(description="the answers in one call, as JSON; the last one stands for all that follow")


Size = int | Formula
"""A size: a number or a formula."""


class Operand(Record):
    """A tensor that an operator reads or writes."""

    name: str = Field(description="the argument's name in ATen's schema; of an output its number")
    shape: list[Size]
    width: Literal["w", "a", "kv"] | int = Field(description="w_bytes, a_bytes or kv_bytes per element, or its bytes")
    role: Literal["weight", "activation", "cache", "index"]
    present: Size = Field(1, description="1 where the operator has this operand, 0 where it has another or none")


class Operands(Record):
    """Inputs and outputs of one operator. The sizes of its product, if it has one, are fields.

    FLOPs of a product: ``2 * batch * m * n * k``; of a grouped one ``2 * tokens * top_k * n * k``; of attention
    ``2 * batch * heads * q_len * kv_len * (head_dim + v_head_dim)``.
    """

    operator: str = Field(description="ATen's name, without overload")
    inputs: list[Operand]
    outputs: list[Operand]
    batch: Size | None = None
    m: Size | None = None
    n: Size | None = None
    k: Size | None = None
    tokens: Size | None = None
    experts: Size | None = None
    top_k: Size | None = None
    q_len: Size | None = None
    kv_len: Size | None = None
    heads: Size | None = None
    kv_heads: Size | None = None
    head_dim: Size | None = None
    v_head_dim: Size | None = None
    window: Size | None = Field(None, description="of attention in a sliding window: its size")
    causal: Size | None = Field(None, description="of attention: 1 if it is causal without a mask tensor, else 0")

    def sizes(self) -> Iterator[int | str]:
        """All sizes: of shapes, of presence, of the product."""
        for operand in (*self.inputs, *self.outputs):
            yield from (operand.present, *operand.shape)
        yield from (value for name in self.product_fields() if (value := getattr(self, name)) is not None)

    def with_sizes(self, size: Callable[[int | str], int | str]) -> Operands:
        """The same operands with each size replaced. Operands that are then never present are left out."""

        def replaced(group: list[Operand]) -> list[Operand]:
            sized = ((one, size(one.present), [size(dim) for dim in one.shape]) for one in group)
            return [one.model_copy(update={"present": p, "shape": shape}) for one, p, shape in sized if p != 0]

        product = {name: value for name in self.product_fields() if (value := getattr(self, name)) is not None}
        update = {name: size(value) for name, value in product.items()}
        return self.model_copy(update={"inputs": replaced(self.inputs), "outputs": replaced(self.outputs), **update})

    @classmethod
    def product_fields(cls) -> list[str]:
        """Names of the sizes of products."""
        return [name for name in cls.model_fields if name not in ("operator", "inputs", "outputs")]


class Step(Record):
    """Common fields of all kernels: one operator, or one module call, at one source line."""

    kernel_type: Literal["basic", "composite"]
    operation: str
    line: int
    code: str
    file: str | None = Field(None, description="the file of `line`, when it is not that of the class")
    function: str | None = Field(None, description="the plain function the line stands in, when it is not forward()")
    path: str | None = Field(
        None, description="of a composite kernel: the called module's attribute path, as gate_proj"
    )
    analysis: str
    category: str
    repeat: int | Formula = 1
    causal: bool = Field(False, description="attention with a causal mask; its FLOPs are counted in full all the same")


KernelId = Annotated[
    str | None, Field(description="unique in the file; in a model it begins with the ids of the calls")
]
Sources = Annotated[
    list[str],
    Field(
        description="ids of the kernels that made the inputs; inputs.NAME: an input of the class; cache: the KV cache "
        "before the call"
    ),
]


class KernelClaims(Step):
    """What an author claims of a kernel of one module: the formulas of a composite one are references."""

    flops: Formula
    memory_access: MemoryAccess
    operands: Operands | None = Field(None, description="of a basic kernel; none if its runs differ in shape")


class Kernel(KernelClaims):
    """A kernel of one module, with the kernels that made its inputs.

    In ``inputs_from`` and ``arguments_from``, ``ID.N`` is output N of a composite kernel, from 0.
    """

    id: KernelId = None
    inputs_from: Sources = []
    arguments_from: dict[str, list[str]] = Field(
        default_factory=dict, description="of a composite kernel: argument of forward() -> what made it"
    )


class ModelKernel(Step):
    """A kernel of a whole model, in the variables of its root.

    A basic one has formulas. A composite one has the class that it calls, that module's ``path`` from the root, and
    what runs inside of it, once: its ``repeat`` says how often.
    """

    id: KernelId = None
    inputs_from: Sources = []
    class_name: ClassPath | None = None
    flops: Formula | None = None
    memory_access: MemoryAccess | None = None
    operands: Operands | None = None
    kernels: list[ModelKernel] = []


class FindingKind(StrEnum):
    """Subject of a finding. Code decides by this; the finding's texts are for people only."""

    amount = "amount"
    """A quantity of one line. ``Finding.quantity`` is the field of ``Amounts``."""
    total = "total"
    """A quantity of one whole call."""
    negative = "negative"
    """A kernel with a cost below 0."""
    formula = "formula"
    """A formula without a value."""
    parameter = "parameter"
    """A parameter whose path has no value, or a value that contradicts its name."""
    assumption = "assumption"
    """An assumption without a value."""
    parameters_count = "parameters_count"
    operands = "operands"
    """Operands that no executed operator has, or that give other FLOPs than the kernel's."""
    uncovered = "uncovered"
    """A line with a cost and without a kernel."""
    listed_free = "listed_free"
    """A line with a cost that is listed as free."""
    listed_not_taken = "listed_not_taken"
    """An executed line that is listed as not taken."""
    other_class = "other_class"
    """A reference to a class that is not called at its line."""
    other_path = "other_path"
    """A kernel's ``path`` at which no module is called."""
    left_out = "left_out"
    """A phase that runs but that the assumptions or pins exclude."""
    arm = "arm"
    """An arm of the formulas that no executed point takes."""
    uncounted = "uncounted"
    """An operator without a rule: no analysis can correct this."""
    whole_run = "whole_run"
    """A difference between lmp's counter and torch's: no analysis can correct this."""


class Finding(Record):
    """One difference between the formulas and the executed module."""

    kind: SkipJsonSchema[FindingKind | None] = Field(default=None, exclude=True)
    """Set by the judge and not stored: None in a finding read from a file."""
    operator: SkipJsonSchema[str | None] = Field(default=None, exclude=True)
    """Name of the operator without a rule. Not stored."""
    line: int | None
    file: str | None = None
    quantity: str
    point: str
    claimed: str
    counted: str
    operators: list[str] | None = Field(default=None, description="what ran at the line, with the shapes that went in")


class Provenance(Record):
    """Who wrote an analysis that lmp's own engine did not make, and what it took. None: not known."""

    stage: Literal["module-analyzer", "reference-expander", "narrator", "refuter", "submitted"]
    author: str | None = Field(default=None, description="of a submission: who wrote it, as it was submitted")
    models: list[str] = Field(default=[], description="models that answered, as the service named them")
    turns: int | None = Field(default=None, description="answers of the model")
    rounds: int | None = Field(default=None, description="submissions, the accepted one included")
    cost_usd: float | None = Field(default=None, description="the client's estimate")
    seconds: float | None = None
    prompt_sha256: str | None = Field(default=None, description="of the system prompt and the first message")
    sdk_version: str | None = None
    cli_version: str | None = None
    run: str | None = Field(default=None, description="the run that made it: its folder under RESULTS/.runs")


class ArmTaken(Record):
    """One arm of the formulas: a side of a condition, a winning argument of min or max, a kind of quotient."""

    of: str = Field(description="the condition, call or quotient")
    side: str
    point: str | None = Field(default=None, description="the first executed point that takes it")
    excluded: str | None = Field(default=None, description="the contradiction, if no sizes take it")


class Verification(Record):
    """What the judge found. ``failed`` carries findings, ``unverified`` carries a reason."""

    status: Status
    points: int = 0
    checks: list[str] = []
    findings: list[Finding] = []
    reason: str | None = None
    phases: list[str] = Field(default=[], description="prefill, decode, chunked prefill, first token: those judged")
    open: list[str] | None = Field(
        default=None,
        description="references left out of the judgement: their class is not known yet, or has such references itself",
    )
    arms: list[ArmTaken] = Field(default=[], description="arms of the formulas, and the points that took them")


class Quantization(Record):
    """How a config says that the weights of its checkpoint are stored. Stored formulas have every weight at w_bytes."""

    config: Any = Field(description="the config's quantization_config, as it is there")
    whole: bool = Field(description="the class is the model that the config is of: it has the paths of the checkpoint")
    applied: str | None = Field(default=None, description="the method whose bytes the formulas have; null: w_bytes")
    warnings: list[str] = Field(default=[], description="what of it is not in the formulas, and why")


KernelType = TypeVar("KernelType", Kernel, ModelKernel)


class Analysis(Record, Generic[KernelType]):
    """Common fields of the analyses of a module and of a model: all but the type of the kernels."""

    schema_version: Literal[1] = 1
    class_name: ClassPath
    engine: str
    source: Source
    config: ConfigOrigin = DEFAULT_CONFIG
    attn_implementation: str | None = Field(None, description="what the model was run with")
    attn_requested: str = Field("sdpa", description="what was asked for: a model that lacks it runs with another")
    dtype: str = "bfloat16"
    parameters: dict[str, str]
    values: dict[str, int] = Field(default_factory=dict, description="value of each parameter at the analysis's config")
    aliases: dict[str, str] = Field(
        default_factory=dict, description="the config's own name of a parameter -> the parameter, where they differ"
    )
    interface: dict[str, list[Formula]] = Field(
        default_factory=dict, description="shape of each tensor that forward() takes, as formulas"
    )
    assumptions: list[Formula] = []
    pinned: dict[str, int] = Field(default_factory=dict, description="config values that stand as numbers in formulas")
    kernels: list[KernelType]
    fixed: dict[str, str] = Field(
        default_factory=dict,
        description="constructor arguments that are no variables -> the value the formulas are for",
    )
    called_with: dict[str, str] = Field(
        default_factory=dict,
        description="tensors that the model around the class was called with -> their shapes; none: token ids alone",
    )
    free_lines: list[int] = Field(default=[], description="lines of the class's file that run and cost nothing")
    free_lines_elsewhere: dict[str, list[int]] = Field(
        default_factory=dict, description="the same of functions in other files that forward() calls"
    )
    not_taken_lines: list[int] = Field(default=[], description="lines that the analysed inference path does not run")
    uncounted: list[str] = Field(default=[], description="operators without a rule: their cost is not in the formulas")
    compulsory: MemoryAccess | None = Field(None, description="inputs, weights and cache once; outputs once")
    parameters_count: Formula | None = None
    given: Given | None = Field(
        default=None, description="of a class that is in no model: how it was constructed and called"
    )
    decisions: list[Decision] = Field(
        default=[], description="where the path depends on values of tensors: the formulas are of one path"
    )
    verification: Verification = Verification(status="unverified", reason="not verified yet")
    fingerprint: dict[str, str] = Field(
        default_factory=dict,
        description="source file -> sha256; derived_by, judged_by, linked_by -> sha256 of those parts of lmp",
    )
    provenance: list[Provenance] = Field(default=[], description="who wrote it, where lmp's own engine did not")
    quantization: Quantization | None = Field(default=None, description="of a config whose checkpoint is quantised")


class ModuleAnalysis(Analysis[Kernel]):
    """``module_analysis.json``: what each line of one ``forward()`` costs."""

    within: ClassPath | None = Field(
        default=None, description="the model that the class was run in, and is verified in"
    )
    as_a_part: bool = Field(
        default=False, description="it has other inputs there than by itself, or another config: that of a backbone"
    )
    refers_to: dict[ClassPath, str] = Field(
        default_factory=dict, description="class that kernels refer to -> sha256 of what its analysis says"
    )
    outputs_from: list[list[str]] = Field(default=[], description="what made each output, as in `inputs_from`")
    inlined: dict[str, str] = Field(
        default_factory=dict,
        description="called class without a reference, as its operators stand at the caller's lines -> the reason",
    )


Lookup = Callable[[str], ModuleAnalysis]
"""The analysis of a class path."""


def short(class_path: str) -> str:
    """The class's own name."""
    return class_path.rpartition(".")[2]


class Totals(Record):
    """Formulas of one call of a whole model, each kernel counted as often as it runs."""

    flops: Formula
    matmul_flops: Formula
    read: Formula
    write: Formula
    parameters_count: Formula | None = None


class Part(Record):
    """A class that a model was linked from. ``sha256`` is that of its ``module_analysis.json``."""

    status: Status
    sha256: str
    file: str | None = Field(None, description="where the class stands, relative to its tree's root")
    uncounted: list[str] = []


class ModelAnalysis(Analysis[ModelKernel]):
    """``model_analysis.json``: a class with everything it calls in place, and no reference left.

    ``assumptions`` are those of every class in it, in the root's variables; ``compulsory`` is that of the root.
    """

    totals: Totals
    parts: dict[ClassPath, Part] = Field(description="every class in it, the root included")


# --- submissions -----------------------------------------------------------------------------------------------------


class DraftKernel(KernelClaims):
    """A kernel of a submission. ``code`` may be left out: it is the file's own text of ``line``.

    Edges between kernels are no claims. Those of an analysis that is submitted again are left out.
    """

    code: str = ""

    @model_validator(mode="before")
    @classmethod
    def _without_edges(cls, data: object) -> object:
        edges = Kernel.model_fields.keys() - KernelClaims.model_fields.keys()
        return {n: v for n, v in data.items() if n not in edges} if isinstance(data, dict) else data


class Draft(Record):
    """A submission's claims about one class: the part of an analysis that lmp does not derive by itself.

    The class of a composite kernel may follow only from reading or from the whole model. Then the kernel names the
    attribute, ``${{self.act_fn}}(...)``: an open reference, which `lmp expand --engine agent` closes.
    """

    class_name: ClassPath
    parameters: dict[str, str]
    assumptions: list[Formula] = []
    pinned: dict[str, int] = {}
    kernels: list[DraftKernel]
    free_lines: list[int] = []
    free_lines_elsewhere: dict[str, list[int]] = {}
    not_taken_lines: list[int] = []
    parameters_count: Formula | None = None


Rule = Literal["schema", "class", "grammar", "variable", "reference", "line", "coverage", "free line", "numbers"]


ReviewRule = Literal[
    "pointer", "placeholder", "table", "number", "diagram", "written", "code", "shape", "section", "checklist"
]
"""What a review finds."""
NarrativeRule = Literal["ground"] | ReviewRule
"""Rules for an agent's text in a report: those of the review, and that every text states its source."""


class GateFinding(Record):
    """One mistake in a submission, small enough to be corrected separately."""

    rule: Rule | NarrativeRule
    message: str = Field(description="what is wrong and what is expected, in one or two sentences")
    kernel: int | None = Field(default=None, description="index of the kernel, from 0")
    line: int | None = None
    file: str | None = Field(default=None, description="the file of `line`, when it is not that of the class")
    quantity: str | None = None
    point: str | None = None
    claimed: str | None = None
    counted: str | None = None


class HandIn(Record):
    """The outcome of a submission."""

    class_name: str
    accepted: bool
    status: Status
    reason: str | None = Field(default=None, description="why it is unverified")
    findings: list[GateFinding] = []
    file: str | None = Field(default=None, description="where it was stored; of a refused one, where the draft is kept")


class Binding(Record):
    """The reference expander's decision on one open place of a class: never a formula of costs."""

    class_name: ClassPath = Field(description="the class whose analysis has the open place")
    kernel: int = Field(description="index of the kernel, from 0")
    target: ClassPath = Field(description="the class that is meant")
    bindings: dict[str, Formula] = Field(description="each parameter of the target, in the variables of the class")
    repeat: int | Formula | None = Field(default=None, description="how often it runs; None: as the analysis says")


class Bindings(Record):
    """The submission of the reference expander."""

    bindings: list[Binding]


# --- reports ---------------------------------------------------------------------------------------------------------


class ReviewFinding(Record):
    """One defect of a report."""

    rule: ReviewRule
    line: int = Field(description="line of the report")
    message: str = Field(description="what is wrong, and what would be right where that is known")


class Review(Record):
    """Output of ``lmp review --json`` for one file."""

    file: str
    findings: list[ReviewFinding] = []
    pointers: int = Field(description="places in code that were opened")
    numbers: int = Field(description="numbers that were held against the results")
    notes: list[str] = Field(default=[], description="what was not held against anything, and why")


class Pitfall(Record):
    """Something that costs whoever works with a code base time."""

    what: str
    detect: str = Field(description="the signal by which somebody notices it")
    fix: str


class Strike(Record):
    """A row or a sentence of a report that is wrong, and what shows it."""

    section: str = Field(description="heading that it stands under")
    row: str = Field(description="how the row, or the sentence, begins")
    why: str = Field(description="what shows it, with a place in the code")


class Correction(Record):
    """A cell or a sentence of a report that is wrong, what stands there instead, and what shows it."""

    section: str = Field(description="heading that it stands under")
    row: str = Field(description="how the row, or the sentence, begins")
    column: str = Field(default="", description="heading of the cell's column; empty for a sentence")
    text: str = Field(description="what stands there instead")
    why: str = Field(description="what shows it, with a place in the code")


class Narrative(Record):
    """What an agent writes into a report, for places that are otherwise composed from the facts.

    Texts are plain, with `` `names` `` and `` `path:line` (`symbol`) `` pointers; nothing else is markup. Every pointer
    must open at its symbol, and every number with a unit must be one of the report's own.
    """

    tldr: list[str] = Field(min_length=1, description="sentences, 3 to 8")
    insights: dict[str, list[str]] = Field(
        default={}, description="class path, or name of a component -> sentences on it"
    )
    pitfalls: list[Pitfall] = []
    deep_dive: dict[str, list[str]] = Field(default={}, description="heading of a section -> sentences that go further")
    open_questions: list[str] = []
    strikes: list[Strike] = []
    corrections: list[Correction] = []


class Judged(Record):
    """What a second reader says of one text of a narrative."""

    text: str = Field(description="which one: tldr[2], pitfalls[0].fix")
    holds: bool = Field(description="whether the code shows what the text says")
    why: str = Field(description="what shows that; where it does not hold, with a place in the code")


class Refutation(Record):
    """What a second reader says of every text of a narrative."""

    judged: list[Judged]


class Narration(Record):
    """A narrative with its provenance: ``reports/assets/<name>-narrative.json``."""

    narrative: Narrative = Field(description="without what was refuted")
    provenance: Provenance
    refutation: Refutation | None = Field(default=None, description="of the second pass; None: there was none")
    refuted_by: Provenance | None = None
    not_refuted: str | None = Field(default=None, description="why there was no second pass")


# --- the zoo ---------------------------------------------------------------------------------------------------------


class ZooEntry(Record):
    """What became of one model family: its class for a task, expanded and verified at its default config."""

    family: str = Field(description="model type, as transformers' auto classes know it")
    task: str = Field(description="causal-lm, base, ...: the auto mapping that names the class")
    class_name: ClassPath | None = Field(default=None, description="None where no source defines it")
    status: Literal["verified", "unverified", "failed", "error", "stopped"] = Field(
        description="failed: formulas differ from execution; error: no formulas; stopped: by a limit, or crashed"
    )
    cause: Literal["config", "dependency", "lmp"] | None = Field(
        default=None,
        description="why it is not verified: the model's default config, a missing optional dependency, or lmp",
    )
    reason: str | None = Field(default=None, description="what stopped it, in one or two sentences")
    place: str | None = Field(default=None, description="file:line of the source that it stopped at")
    config: str = Field(default="default", description="name of the config: the part of the results folder after the @")
    adjustments: list[str] = Field(default=[], description="what was set where the default config is not consistent")
    phases: list[str] = Field(default=[], description="prefill, decode, chunked prefill: those judged, exactly")
    classes: int = Field(default=0, description="classes in it, each verified by itself")
    pinned: list[str] = Field(default=[], description="config values that stand as numbers in formulas")
    assumptions: int = Field(default=0, description="conditions under which the formulas hold")
    decisions: int = Field(default=0, description="lines that decide on values of tensors, and were answered")
    totals: dict[str, int] = Field(
        default={}, description="flops, matmul_flops, read, write, parameters_count of one prefill, batch 1, 128 tokens"
    )
    seconds: float = Field(default=0, description="wall time")
    cpu_seconds: float = 0
    peak_bytes: int = Field(default=0, description="largest resident memory of its process")
    stored_bytes: int = Field(default=0, description="of the files that belong to it")
    fingerprint: str = Field(default="", description="of lmp's rules, the sources' versions and what was asked for")


class ZooRun(Record):
    """How entries of a summary were made, the last time that any was."""

    workers: str = Field(description="as: 2 processes; 4 threads of Dask workers")
    wall_seconds: float
    made: int = Field(description="entries that were made in this run")
    parent_peak_bytes: int


class ZooSummary(Record):
    """``reports/zoo/<task>.json``: all families of a task, those that were not run yet included."""

    schema_version: Literal[1] = 1
    task: str
    lmp: str = Field(description="version")
    sources: dict[str, str] = Field(description="distribution -> version")
    dtype: str
    attention: str
    families: int = Field(description="families that the task has")
    verified: int
    not_run: list[str] = []
    run: ZooRun | None = None
    entries: list[ZooEntry]
