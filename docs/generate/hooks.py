"""MkDocs hooks: generated pages and tables, pictures, formulas as MathML, and the list of methods and papers."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import latex2mathml.converter
import pictures
import tables
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from sparsona.methods import METHODS

DOCS = Path(__file__).parents[1]
CARDS = {"plga": "spfl-plga", "spfl": "spfl-plga"}
PICTURE = re.compile(r"^```picture\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ON_THE_SITE = "The site that `make docs` builds has this table. <!-- parts -->"
FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def papers() -> list[str]:
    """The pages about papers, by file name."""
    return sorted(path.stem for path in (DOCS / "papers").glob("*.md") if path.stem != "index")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    nav: list[dict[str, list[Any]]] = config.nav  # type: ignore[assignment]
    parts = {name: pages for part in nav for name, pages in part.items()}
    parts["Methods"] += [f"methods/{name}.md" for name in METHODS.names()]
    parts["Papers"][1:1] = [f"papers/{name}.md" for name in papers()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in METHODS.names():
        if files.get_file_from_path(f"methods/{name}.md") is None:
            files.append(File.generated(config, f"methods/{name}.md", content=tables.skeleton(name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    markdown = markdown.replace("](../CONTRIBUTING.md)", "](contribute.md)")
    if uri == "methods/index.md":
        markdown = markdown.replace("<!-- methods -->", tables.methods_list())
        markdown = markdown.replace("<!-- costs -->", tables.costs_page_table())
    elif uri == "privacy.md":
        markdown = markdown.replace(ON_THE_SITE, tables.parts_table())
    elif uri.startswith("methods/"):
        markdown = method_page(markdown, Path(uri).stem, page.meta)
    return PICTURE.sub(lambda found: f"{pictures.draw(found[1])}\n{pictures.LEGEND}\n", markdown)


def method_page(markdown: str, name: str, meta: dict[str, Any]) -> str:
    """A method's page with its tables, and a link to its card."""
    markdown = markdown.replace("<!-- options -->", tables.options_table(name, meta.get("symbols") or {}))
    markdown = markdown.replace("<!-- cost -->", tables.cost_table(name))
    card = meta.get("card") or CARDS.get(name, name)
    more = ["## Facts", tables.facts(name)]
    if card in papers():
        more.append(f"What its paper claims and what was measured: [its page](../papers/{card}.md).")
    return "\n\n".join([markdown, *more])


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return FORMULA.sub(lambda found: mathml(unescape(found[2])), html)


def mathml(text: str) -> str:
    """A formula of TeX in its brackets as MathML, which browsers draw themselves."""
    text = text.strip()
    block = text.startswith("\\[")
    return latex2mathml.converter.convert(text[2:-2].strip(), display="block" if block else "inline")
