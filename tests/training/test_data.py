"""Text becomes the same batches wherever and whenever it is read."""

import numpy as np
import pytest

from sbpjax.errors import InvalidRecipe
from sbpjax.training.data import Windows, batches, read_text
from sbpjax.training.recipe import Data


@pytest.fixture(scope="module")
def library():
    return read_text(Data(limit=200_000))


def test_the_library_is_python_text_of_the_asked_size(library):
    assert len(library.tokens) == 200_000
    assert b"import " in library.tokens.tobytes()


def test_reading_twice_gives_the_same(library):
    np.testing.assert_array_equal(library.tokens, read_text(Data(limit=200_000)).tokens)


def test_targets_are_the_next_tokens():
    windows = Windows(np.arange(11, dtype=np.uint8), 5)
    assert len(windows) == 2
    np.testing.assert_array_equal(windows[1]["tokens"], [5, 6, 7, 8, 9])
    np.testing.assert_array_equal(windows[1]["targets"], [6, 7, 8, 9, 10])


def test_equal_seeds_give_equal_batches_and_others_do_not(library):
    first, again, other = (batches(library, 64, 8, seed) for seed in (1, 1, 2))
    for step in (0, 7, 500):
        np.testing.assert_array_equal(first[step]["tokens"], again[step]["tokens"])
    assert not np.array_equal(first[0]["tokens"], other[0]["tokens"])


def test_an_epoch_shows_every_window_once_and_the_next_in_another_order(library):
    made = batches(library, 1000, 1, seed=0)
    n = len(Windows(library.tokens, 1000))
    epochs = [[made[epoch * n + i]["tokens"].tobytes() for i in range(n)] for epoch in (0, 1)]
    assert (
        sorted(epochs[0])
        == sorted(epochs[1])
        == sorted(Windows(library.tokens, 1000)[i]["tokens"].tobytes() for i in range(n))
    )
    assert epochs[0] != epochs[1]


def test_a_users_file_or_folder_is_read_in_the_order_of_paths(tmp_path):
    (tmp_path / "b.txt").write_bytes(b"second")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_bytes(b"first ")
    (tmp_path / "skipped.md").write_bytes(b"no")
    folder = read_text(Data(source=str(tmp_path), pattern="**/*.txt"))
    assert folder.tokens.tobytes() == b"first second" and folder.files == 2
    assert read_text(Data(source=str(tmp_path / "b.txt"), limit=3)).tokens.tobytes() == b"sec"


def test_text_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidRecipe, match=r"data\.source.*neither a file nor a folder"):
        read_text(Data(source=str(tmp_path / "nowhere")))
    with pytest.raises(InvalidRecipe, match=r"data\.pattern: no text"):
        read_text(Data(source=str(tmp_path)))


def test_text_that_fills_no_batch_is_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(bytes(100))
    with pytest.raises(InvalidRecipe, match=r"need 257 bytes of text.* has 100"):
        batches(read_text(Data(source=str(tmp_path / "a.txt"))), 64, 4, 0)
