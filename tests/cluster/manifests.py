#!/usr/bin/env python3
"""The manifests of examples/kubernetes/ fit the schemas of the operators that run them.

    tests/cluster/manifests.py CRD.yaml...      custom resource definitions, as the operators' repositories have them

Needs PyYAML and jsonschema (Debian: python3-yaml, python3-jsonschema). Fields that a schema does not have are errors,
as with `kubectl --validate=strict`; every manifest must be of a kind that one of the definitions has.
"""
import sys
from pathlib import Path

import jsonschema
import yaml

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / "kubernetes"


def strict(schema):
    """The schema with unknown fields refused, except in metadata, of which definitions have no fields."""
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if "properties" in schema:
        made["properties"] = {key: strict(value) for key, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        made = {"type": ["integer", "string"]}
    return made


def schemas(paths):
    """Schemas by apiVersion and kind."""
    found = {}
    for path in paths:
        for document in yaml.safe_load_all(Path(path).read_text(encoding="utf-8")):
            if document and document["kind"] == "CustomResourceDefinition":
                spec = document["spec"]
                for version in spec["versions"]:
                    key = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
                    found[key] = strict(version["schema"]["openAPIV3Schema"])
    return found


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    known, failed = schemas(sys.argv[1:]), 0
    for path in sorted(FOLDER.glob("*.yaml")):
        manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
        schema = known.get((manifest["apiVersion"], manifest["kind"]))
        found = [] if schema is None else jsonschema.Draft7Validator(schema).iter_errors(manifest)
        errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in found]
        errors += ["no definition of this kind"] if schema is None else []
        failed += bool(errors)
        print(f"{path.name}: {manifest['kind']} of {manifest['apiVersion']}: {'; '.join(errors) or 'valid'}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
