"""The schemas in ``schemas/`` are those of the records."""

from __future__ import annotations

from pathlib import Path

import analyses
import pytest
from jsonschema import Draft202012Validator

from lmp.errors import UsageError
from lmp.records import ModuleAnalysis
from lmp.store import schemas
from lmp.store.results import to_data

FOLDER = Path(__file__).parents[2] / "schemas"


@pytest.mark.parametrize("name", schemas.DESCRIBED)
def test_the_file_is_the_record(name: str) -> None:
    file = FOLDER / f"{name}.schema.json"
    assert file.read_text() == schemas.schema_text(name), "run `lmp schema --write`"


def test_no_file_without_a_record() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.schema.json" for name in schemas.DESCRIBED}


@pytest.mark.parametrize("name", schemas.DESCRIBED)
def test_each_is_a_schema_of_the_draft(name: str) -> None:
    Draft202012Validator.check_schema(schemas.schema(name))
    assert schemas.schema(name)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_writing_them(tmp_path: Path) -> None:
    written = schemas.write_schemas(tmp_path / "new")
    assert [path.name for path in written] == [f"{name}.schema.json" for name in schemas.DESCRIBED]
    assert (tmp_path / "new" / "evaluation.schema.json").read_text() == schemas.schema_text("evaluation")


def test_a_schema_that_is_not_there() -> None:
    with pytest.raises(
        UsageError, match="there is no schema 'x'\nthe schemas are module_analysis, model_analysis, module_draft"
    ):
        schemas.schema("x")


def test_a_problem_names_its_place() -> None:
    data = to_data(analyses.mlp())
    assert schemas.problem(ModuleAnalysis, data) is None
    data["kernels"][2]["memory_access"] = {"read": "1"}
    assert schemas.problem(ModuleAnalysis, data) == "kernels[2].memory_access: 'write' is a required property"
