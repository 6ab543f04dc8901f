"""Files that cannot be a site's table, each with the line that its user sees."""

import gzip
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from fedminmax.config.file_format import AUTO, FileFormat
from fedminmax.data.tables.odd_rows import shown_here
from fedminmax.data.tables.read_file import read_table, table_from
from tests.complaints import complaint_of

WANTED = ["age", "ill"]


def written(folder: Path, content: str | bytes, name: str = "north.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def message(path: Path, delimiter: str = AUTO) -> str:
    """The complaint about this file, without its folder."""
    return complaint_of(lambda: read_table(path, WANTED, FileFormat(delimiter))).replace(
        f"{path.parent}/", ""
    )


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(delimiter: str, tmp_path: Path) -> None:
    text = "age,ill\n1,no\n2,yes\n".replace(",", delimiter)
    table = read_table(written(tmp_path, text), WANTED)
    assert table.frame.rows() == [("1", "no"), ("2", "yes")]


def test_the_wanted_columns_decide_between_delimiters(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "age;ill;height, in cm, barefoot\n1;no;180\n"), WANTED)
    assert table.frame.columns == ["age", "ill", "height, in cm, barefoot"]


def test_byte_order_mark_blank_lines_spaces_and_line_ends(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeffage, ill\r\n1,no\r\n\r\n2,yes\r\n\r\n")
    table = read_table(path, WANTED)
    assert table.frame.columns == ["age", "ill"]
    assert table.frame["age"].to_list() == ["1", "2"]
    assert table.row_numbers.to_list() == [1, 3]


def test_a_missing_file(tmp_path: Path) -> None:
    expected = "north.csv does not exist or is not a file; correct the path"
    assert message(tmp_path / "north.csv") == expected


def test_an_unknown_ending(tmp_path: Path) -> None:
    known = ".csv, .tsv, .txt, .csv.gz, .parquet, .pq"
    for name in ("north.json", "north.gz", "north.json.gz"):
        assert message(written(tmp_path, "", name)) == (
            f"{name} has an unknown ending; give a file that ends in {known}"
        )


@pytest.mark.parametrize("name", ["north.xlsx", "north.ods", "north.xlsx.gz"])
def test_a_spreadsheet(name: str, tmp_path: Path) -> None:
    expected = f"{name} is a spreadsheet; save its sheet as CSV in UTF-8 and give that"
    assert message(written(tmp_path, "", name)) == expected


def test_a_spreadsheet_or_archive_under_another_name(tmp_path: Path) -> None:
    assert message(written(tmp_path, b"PK\x03\x04...")) == (
        "north.csv is an Excel or ZIP file by its content; save its table as CSV in UTF-8"
    )


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "north.csv").mkdir()
    assert message(tmp_path / "north.csv").startswith(
        "north.csv is a folder; name the files in it that end in .csv, "
    )


@pytest.mark.parametrize("name", ["north.csv.gz", "north.tsv.gz", "north.csv"])
def test_a_compressed_file_is_read(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b"age\till\n1\tno\n\n2\tyes\n"), name)
    table = read_table(path, WANTED)
    assert table.frame.rows() == [("1", "no"), ("2", "yes")]
    assert table.row_numbers.to_list() == [1, 3]
    path.write_bytes(path.read_bytes()[:-9])
    assert message(path) == f"{name} is damaged: gzip cannot unpack it; write it again"


def test_nul_bytes_are_warned_of(tmp_path: Path) -> None:
    path = written(tmp_path, "age,ill\n1,no\n2,y\0s\n\0\0,no\n")
    (warning,) = shown_here(read_table(path, WANTED).odd)
    assert "NUL bytes" in warning
    assert warning.endswith(f"2 rows of {path} (first: row 2)")
    assert read_table(written(tmp_path, "age,ill\n1,no\n"), WANTED).odd == ()


@pytest.mark.parametrize("content", ["", "\n", "  \n"])
def test_an_empty_file(content: str, tmp_path: Path) -> None:
    expected = "north.csv is empty; it needs a header line and rows"
    assert message(written(tmp_path, content)) == expected


def test_a_header_without_rows(tmp_path: Path) -> None:
    assert message(written(tmp_path, "age,ill\n")) == (
        "north.csv has a header but no rows; add rows or remove the file"
    )


def test_a_wrong_delimiter(tmp_path: Path) -> None:
    assert message(written(tmp_path, "age;ill\n1;no\n"), ",") == (
        "north.csv: delimiter ',' gives 1 column, 'age;ill'; set delimiter = ';' in [data], "
        "which gives 2"
    )


def test_no_delimiter_that_gives_the_columns(tmp_path: Path) -> None:
    path = written(tmp_path, "age:ill\n1:no\n")
    assert read_table(path, WANTED, FileFormat(":")).frame.columns == WANTED
    table = read_table(path, WANTED)
    said = complaint_of(lambda: table.require(WANTED, "which the configuration names"))
    assert said.replace(f"{tmp_path}/", "") == (
        "north.csv (1 row) has no column 'age', which the configuration names; "
        "its one column is 'age:ill': if that is a whole line, set its delimiter in [data]"
    )


def test_a_row_with_too_many_fields(tmp_path: Path) -> None:
    assert message(written(tmp_path, "age,ill\n1,no\n2,yes,perhaps\n")) == (
        "north.csv: row 2 has 3 fields, the header has 2; quote texts that contain ',', and remove "
        "lines above the header"
    )


def test_a_column_twice(tmp_path: Path) -> None:
    expected = "north.csv has two columns 'age'; rename one of them"
    assert message(written(tmp_path, "age,ill,age\n1,no,2\n")) == expected


@pytest.mark.parametrize("content", ["age,ill\n1,n\xe3o\n", "\xe2ge,ill\n1,no\n"])
def test_another_encoding(content: str, tmp_path: Path) -> None:
    path = written(tmp_path, content.encode("latin-1"))
    assert message(path) == (
        'north.csv is not in UTF-8; set encoding = "cp1252" (or what it is in) in [data], or give '
        "--encoding, or save it as UTF-8"
    )


def test_a_file_that_is_no_parquet(tmp_path: Path) -> None:
    said = message(written(tmp_path, "age,ill\n1,no\n", "north.parquet"))
    assert said == (
        "north.parquet is not a Parquet file by its content; if that is right, rename it to end in "
        ".csv"
    )
    said = message(written(tmp_path, "PAR1 and so on", "north.parquet"))
    assert said.startswith("north.parquet cannot be read (")
    assert said.endswith("); write the file again")
    assert "is a Parquet file by its content" in message(written(tmp_path, "PAR1"))


@pytest.mark.parametrize("values", [[[1], [2, 3]], [{"a": 1}, {"a": 2}], [b"\xff", b"a"]])
def test_a_column_of_no_single_values(values: list[object], tmp_path: Path) -> None:
    path = tmp_path / "north.parquet"
    pl.DataFrame({"age": [1, 2], "ill": values}).write_parquet(path)
    table = read_table(path, WANTED)
    table.require(["age"], "which is a feature")
    said = complaint_of(lambda: table.require(WANTED, "which is a feature"))
    assert "column 'ill', which is a feature, holds " in said
    assert "one value per row" in said


def test_a_parquet_file_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "north.parquet"
    pl.DataFrame({"age": [], "ill": []}).write_parquet(path)
    assert message(path) == "north.parquet has a header but no rows; add rows or remove the file"


def test_a_row_that_was_cut_off(tmp_path: Path) -> None:
    assert message(written(tmp_path, "age,sex,ill\n1,m,no\n2\n3,f,yes\n4,f\n")) == (
        "north.csv: row 2 has 1 field, the header has 3 (2 such rows); the file may be cut off: "
        "write it again"
    )


def test_an_empty_row_that_was_cut_off(tmp_path: Path) -> None:
    said = message(written(tmp_path, "age,sex,ill\n1,m,no\n,\n3,f,yes\n"))
    assert said.startswith("north.csv: row 2 has 2 fields, the header has 3 (1 such row)")


def test_blank_lines_are_no_rows_and_empty_rows_between_others_are(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "age,ill\n1,no\n\n,\n2,yes\n,\n,\n\n"), WANTED)
    assert table.frame["age"].to_list() == ["1", None, "2"]
    assert table.row_numbers.to_list() == [1, 3, 4]


@pytest.mark.parametrize("last", ["", "\n"])
@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
def test_any_line_ends(end: str, last: str, tmp_path: Path) -> None:
    text = end.join(["age,ill", "1,no", "2,yes", last])
    assert read_table(written(tmp_path, text), WANTED).frame.rows() == [("1", "no"), ("2", "yes")]


@pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "SEP=;"])
def test_a_line_that_names_the_delimiter(line: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"{line}\r\nage;ill\r\n1;a,b,c\r\n")
    assert read_table(path, WANTED).frame.rows() == [("1", "a,b,c")]


def test_a_header_over_two_lines(tmp_path: Path) -> None:
    said = message(written(tmp_path, 'age,"ill\nor not",sex\n1,no,m\n'))
    assert said.startswith("north.csv: the header has a line break within quotes")


def test_a_first_line_that_is_blank(tmp_path: Path) -> None:
    said = message(written(tmp_path, "\nage,ill\n1,no\n"))
    assert said == "north.csv begins with a blank line; its first line must be the header"


def test_a_quote_that_is_not_closed(tmp_path: Path) -> None:
    rows = "".join(f"{n},no\n" for n in range(2000))
    said = message(written(tmp_path, f'age,ill\n{rows}1,"5" wide"\n{rows}'))
    assert "line 2002" in said
    assert "quote" in said


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", AUTO])
def test_a_byte_order_mark_is_no_letter(encoding: str, tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbfage,ill\n1,no\n")
    assert read_table(path, WANTED, FileFormat(encoding=encoding)).frame.columns == WANTED


def test_a_frame_with_a_column_twice() -> None:
    frame = pd.DataFrame([[1, 2]], columns=["age", "age"])
    assert "has two columns 'age'" in complaint_of(lambda: table_from(frame, WANTED))
