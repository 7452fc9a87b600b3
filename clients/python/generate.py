#!/usr/bin/env python3
"""Makes src/glovebox/_models.py from docs/openapi.json; with --check, fails if it is another one."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "docs" / "openapi.json"
MODELS = HERE / "src" / "glovebox" / "_models.py"

OPTIONS = [
    "--input-file-type=openapi",
    "--output-model-type=pydantic_v2.BaseModel",
    "--target-python-version=3.11",
    "--openapi-scopes",
    "schemas",
    "--custom-file-header=# Generated from docs/openapi.json by generate.py. Not to be edited.",
    "--snake-case-field",
    "--allow-population-by-field-name",
    "--field-constraints",
    "--use-annotated",
    "--use-schema-description",
    "--use-field-description",
    "--use-standard-collections",
    "--use-union-operator",
    "--use-double-quotes",
    "--use-one-literal-as-default",
    "--enum-field-as-literal=all",
    "--use-type-alias-type",
    "--disable-timestamp",
    "--formatters=builtin",
]


def plain(schema: object) -> object:
    """The same schema as the generator makes the plainest types of it: closed lists as `enum`, numbers without Rust's formats."""
    if isinstance(schema, list):
        return [plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    choices = schema.get("oneOf")
    if isinstance(choices, list) and all("const" in choice for choice in choices):
        rest = {key: value for key, value in schema.items() if key != "oneOf"}
        return {**rest, "type": "string", "enum": [choice["const"] for choice in choices]}
    if schema.get("x-kubernetes-int-or-string"):
        return {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": schema["pattern"]}]}
    alternatives = schema.get("anyOf")
    if isinstance(alternatives, list):
        # One list of alternatives, not one in another.
        flat = [inner for item in map(plain, alternatives) for inner in _alternatives(item)]
        schema = {**schema, "anyOf": flat}
    formats = {"uint8", "uint64", "int32"}
    return {key: plain(value) for key, value in schema.items() if not (key == "format" and value in formats)}


def _alternatives(schema: object) -> list[object]:
    if isinstance(schema, dict) and set(schema) == {"anyOf"}:
        return list(schema["anyOf"])
    return [schema]


def generate() -> str:
    """The module's text."""
    document = plain(json.loads(DOCUMENT.read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as directory:
        source, output = Path(directory, "openapi.json"), Path(directory, "models.py")
        source.write_text(json.dumps(document), encoding="utf-8")
        command = [sys.executable, "-m", "datamodel_code_generator", f"--input={source}", f"--output={output}"]
        subprocess.run([*command, *OPTIONS], check=True)
        for tidy in (["check", "--fix", "--quiet", "--select=I,UP"], ["format", "--quiet"]):
            config = f"--config={HERE / 'pyproject.toml'}"
            subprocess.run([sys.executable, "-m", "ruff", *tidy, config, str(output)], check=True)
        return output.read_text(encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if it would")
    check = parser.parse_args().check
    text = generate()
    if not check:
        MODELS.write_text(text, encoding="utf-8")
        return 0
    if text != MODELS.read_text(encoding="utf-8"):
        print(f"{MODELS} is not what {DOCUMENT} says: run {Path(__file__).name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
