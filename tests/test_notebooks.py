"""Notebooks run from top to bottom without a warning, and are stored without outputs.

Stored outputs would show figures that the code no longer makes; a reader's own run shows the true ones.
"""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def test_there_are_notebooks():
    assert NOTEBOOKS


def test_notebooks_are_valid_and_their_cells_named(notebook):
    nbformat.validate(notebook)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)


def test_notebooks_are_stored_without_outputs(notebook):
    stored = [cell.id for cell in notebook.cells if cell.cell_type == "code" and (cell.outputs or cell.execution_count)]
    assert stored == []


def test_notebooks_run_without_a_warning(notebook, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONWARNINGS", "default")  # a kernel hides some of them otherwise
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    said = [
        (cell.id, output.text)
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stderr"
    ]
    assert said == []
    plans = [
        output.data["text/html"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result" and "text/html" in output.data
    ]
    assert len(plans) == 2 and all('class="sbpjax"' in html for html in plans)
