"""Tables on a terminal: ids and words stay whole at any width."""

import pytest

from holdfast.cli.text import TableLayout

ID = "cecdeacb-4256-4aa7-91f8-672693a6ab3d"
ROWS = (
    ("POSITION", "JOB", "STATE", "WORKER", "REASON"),
    ("2", ID, "QUEUED", "", "type resize, queue default"),
    ("3", ID, "RUNNING", "anna", "for 30000 ms"),
    ("4", ID, "DONE", "anna", ""),
)


def shown(width: int) -> list[str]:
    """Returns the lines of the table at this width."""
    layout = TableLayout(ROWS, [0], width)
    return [line for row in ROWS for line in layout.lines(row)]


def test_wide_screen_has_a_line_for_each_row() -> None:
    """Columns are aligned with their headings, without trailing spaces."""
    assert shown(120) == [
        f"POSITION  {'JOB':<36}  STATE    WORKER  REASON",
        f"       2  {ID}  QUEUED           type resize, queue default",
        f"       3  {ID}  RUNNING  anna    for 30000 ms",
        f"       4  {ID}  DONE     anna",
    ]


def test_row_fills_its_empty_columns_before_it_continues_below() -> None:
    """A row uses the space of its empty columns before it continues below."""
    assert shown(83) == [
        f"POSITION  {'JOB':<36}  STATE    WORKER  REASON",
        f"       2  {ID}  QUEUED  type resize, queue default",
        f"       3  {ID}  RUNNING  anna    for 30000 ms",
        f"       4  {ID}  DONE     anna",
    ]
    assert shown(60)[2:6] == [
        f"       2  {ID}  QUEUED",
        "    type resize, queue default",
        f"       3  {ID}  RUNNING",
        "    anna  for 30000 ms",
    ]


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 100])
def test_every_word_is_there_on_any_screen(width: int) -> None:
    """No id is cut and no word is broken at any width."""
    words = " ".join(shown(width)).split()
    assert words == " ".join(" ".join(row) for row in ROWS).split()


def test_wide_characters_count_as_two() -> None:
    """A column after wide characters starts at the same position as in other rows."""
    layout = TableLayout((("名前", "x"), ("ab", "y")), (), 80)
    assert layout.lines(("ab", "y")) == ["ab    y"]
