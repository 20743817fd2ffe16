"""Tables on a terminal: whole ids and whole words on any screen."""

import pytest

from holdfast.cli.screen import TableLayout

ID = "cecdeacb-4256-4aa7-91f8-672693a6ab3d"
ROWS = (
    ("POSITION", "JOB", "STATE", "WORKER", "REASON"),
    ("2", ID, "QUEUED", "", "type resize, queue default"),
    ("3", ID, "RUNNING", "anna", "for 30000 ms"),
    ("4", ID, "DONE", "anna", ""),
)


def shown(width: int) -> list[str]:
    """The whole table on a screen of this width."""
    layout = TableLayout(ROWS, [0], width)
    return [line for row in ROWS for line in layout.lines(row)]


def test_wide_screen_has_a_line_for_each_row() -> None:
    """Columns stand under their headings, and nothing trails behind the last."""
    assert shown(120) == [
        f"POSITION  {'JOB':<36}  STATE    WORKER  REASON",
        f"       2  {ID}  QUEUED           type resize, queue default",
        f"       3  {ID}  RUNNING  anna    for 30000 ms",
        f"       4  {ID}  DONE     anna",
    ]


def test_what_finds_no_room_goes_on_below() -> None:
    """A row that has empty columns uses their room first."""
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
    """However narrow it is, no id is cut and no word is broken."""
    words = " ".join(shown(width)).split()
    assert words == " ".join(" ".join(row) for row in ROWS).split()


def test_wide_characters_count_as_two() -> None:
    """The column behind them begins where it does in the other rows."""
    layout = TableLayout((("名前", "x"), ("ab", "y")), (), 80)
    assert layout.lines(("ab", "y")) == ["ab    y"]
