"""The pipelines that `odradek pipeline init` writes: the folders of `templates` beside this module.

A template is a folder with a pipeline of the same name, and with files that the pipeline or the
commands in its comments read: tables, records to try it with.
"""

import os
import re
import shlex
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from odradek.lazy_dataclass import dataclass

__all__ = ["DEFAULT", "TEMPLATES", "Starter", "read_template"]

DEFAULT: Final = "orders"
# Name -> what it shows, in one line.
TEMPLATES: Final[Mapping[str, str]] = {
    "orders": "every part of the file, commented: JSON, rules, a join, sums, a topic, Delta, files",
    "people": "the smallest pipeline: a topic, a SELECT, a Delta table",
    "shop": "the pipeline of the tutorial: orders and a CSV table, joined and summed up",
}


@dataclass(frozen=True, slots=True)
class Starter:
    """A template.

    Attributes:
        text: The pipeline.
        beside: The other files, by name.
    """

    name: str
    text: str
    beside: Mapping[str, str]

    def for_file(self, path: str) -> str:
        """The pipeline for a file of this path: the commands in its comments name it so."""
        folder = os.path.dirname(path)
        names = {f"{self.name}.yaml": path}
        names |= {name: os.path.join(folder, name) for name in self.beside}
        named = re.compile("|".join(rf"(?<= ){re.escape(name)}(?=\s|$)" for name in names))
        return "".join(
            named.sub(lambda found: shlex.quote(names[found[0]]), line)
            if line.startswith("#     ")
            else line
            for line in self.text.splitlines(keepends=True)
        )


def read_template(name: str) -> Starter:
    """A template by its name, one of `TEMPLATES`."""
    folder = files("odradek.spark.pipeline.file") / "templates" / name
    found = {one.name: one.read_text(encoding="utf-8") for one in folder.iterdir()}
    text = found.pop(f"{name}.yaml")
    return Starter(name, text, dict(sorted(found.items())))
