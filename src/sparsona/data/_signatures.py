"""Recognise a misnamed csv file by its first bytes, so that the error names its true format."""

AS_CSV = "open it and save it as csv"
SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "a gzip file", "unpack it (gunzip)"),
    (b"BZh", "a bzip2 file", "unpack it (bunzip2)"),
    (b"\xfd7zXZ\0", "an xz file", "unpack it (unxz)"),
    (b"(\xb5/\xfd", "a zstd file", "unpack it (unzstd)"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (b"PAR1", "a parquet file", "rename it to end in .parquet"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel or Office file", AS_CSV),
    (b"SQLite format 3\0", "an SQLite database", "export the table as csv"),
    (b"%PDF-", "a PDF document", "ask for the table as csv"),
    (b"\x93NUMPY", "a numpy array", "save it with numpy.savez and a name that ends in .npz"),
    (b"\x89HDF", "an HDF5 file", "export the table as csv"),
)
ZIP = b"PK\x03\x04"
PAGES = (b"<!doctype html", b"<html", b"<?xml")


def signature(data: bytes) -> tuple[str, str] | None:
    """Return the format of the bytes and the fix; None if they may be a text table.

    >>> signature(b"\\x1f\\x8b\\x08..."), signature(b"age,label\\n")
    (('a gzip file', 'unpack it (gunzip)'), None)
    """
    for start, what, fix in SIGNATURES:
        if data.startswith(start):
            return what, fix
    if data.startswith(ZIP):
        if b"xl/" in data or b"[Content_Types].xml" in data:
            return "an Excel workbook (xlsx)", AS_CSV
        if b".npy" in data[:256]:
            return "an npz file", "rename it to end in .npz"
        return "a zip archive", "unpack it"
    head = data[:64].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if head.startswith(PAGES):
        return "a web page or XML", "download the table itself, as csv"
    if head.startswith((b"{", b"[{", b"[[")) and b"\n" not in head.partition(b":")[0]:
        return "JSON", "write it as csv, with a header and one line per row"
    return None
