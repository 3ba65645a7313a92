"""Files as streams of whole lines in UTF-8, whatever compression and encoding they have.

Nothing that a file says of itself is trusted: compressed input is read piece by piece, with a
bound on what may come out of it, and a line has a longest length.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ada_bandit.errors import InputError

__all__ = ["COMPRESSED", "Block", "TextStream", "bare_suffix", "named", "read_whole", "shown"]

COMPRESSED = (".gz", ".zst")
PIECE = 1 << 23
"""Bytes that are read at a time."""
MOST_GROWTH = 200
"""Times its compressed size that a file may come to, beyond `FREE_GROWTH`."""
FREE_GROWTH = 1 << 28
"""Bytes that may come out of any compressed file."""
LONGEST_LINE = 1 << 26
"""Bytes."""
LARGEST_WHOLE = 1 << 29
"""Bytes of a file that has to be read as one piece."""


def shown(value: Any, most: int = 60) -> str:
    """Return a foreign value as it may be printed: short, with everything that a terminal could obey escaped."""
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= most else text[:most] + "…")


def bare_suffix(path: Path) -> str:
    """Return the ending in lower case, without that of a compression."""
    ends = [end.lower() for end in path.suffixes]
    if ends and ends[-1] in COMPRESSED:
        ends.pop()
    return ends[-1] if ends else ""


def named(path: Path) -> str:
    """Return a path as it may be printed."""
    return repr(str(path))


@dataclass(frozen=True)
class Block:
    """Some whole lines of a file."""

    data: bytes
    """The lines, UTF-8, each but perhaps the last of the file with a line feed."""
    first_line: int
    """Number of the first one, from 1."""
    last: bool
    """Whether the file ends here."""
    done: int
    """Bytes of the file, as it lies on the disk, that were read so far."""


class TextStream:
    """One pass over a file of text.

    Parameters
    ----------
    path
        The file; ``.gz`` and ``.zst`` are unpacked while it is read.
    notes
        What is told on the way is appended here.
    """

    def __init__(self, path: Path, notes: list[str]) -> None:
        self.path, self.notes = path, notes
        self.size = path.stat().st_size

    def blocks(self, piece: int | None = None) -> Iterator[Block]:
        """Give the file in blocks of whole lines.

        Raises
        ------
        InputError
            If the file can't be unpacked or decoded, grows beyond its bound, or has a line without end.
        """
        decoder: _Decoder | None = None
        rest, line = b"", 1
        done = 0
        for raw, at in self._pieces(PIECE if piece is None else piece):
            done = at
            if decoder is None:
                decoder = _Decoder(self.path, raw, self.notes)
            text = rest + decoder.decode(raw, final=False)
            cut = text.rfind(b"\n") + 1
            ready, rest = text[:cut], text[cut:]
            lines = ready.count(b"\n")
            if len(rest) > LONGEST_LINE:
                msg = (
                    f"line {line + lines} of {named(self.path)} is longer than "
                    f"{LONGEST_LINE >> 20} MiB; it is no table. Give JSON Lines with one object a line, CSV or Parquet"
                )
                raise InputError(msg)
            if ready:
                yield Block(ready, line, last=False, done=done)
                line += lines
        if decoder is not None:
            rest += decoder.decode(b"", final=True)
        yield Block(rest, line, last=True, done=done)

    def pieces(self) -> Iterator[tuple[str | None, int]]:
        """Give the text in pieces of no special length, and None at its end."""
        decoder: _Decoder | None = None
        for raw, at in self._pieces(PIECE):
            if decoder is None:
                decoder = _Decoder(self.path, raw, self.notes)
            # A piece may end within a character: UTF-8 that was cut is told by the decoder, ASCII can't be cut.
            yield decoder.text(raw), at
        yield None, self.size

    def whole(self) -> bytes:
        """Return the bytes, unpacked and not decoded.

        Raises
        ------
        InputError
            If they are more than a program should read at once.
        """
        parts, size = [], 0
        for raw, _ in self._pieces(PIECE):
            size += len(raw)
            if size > LARGEST_WHOLE:
                msg = (
                    f"{named(self.path)} unpacks to more than {LARGEST_WHOLE >> 20} MiB; unpack it and give the "
                    f"plain file"
                )
                raise InputError(msg)
            parts.append(raw)
        return b"".join(parts)

    def head(self, size: int = 1 << 16) -> bytes:
        """Return the first bytes, decoded."""
        data = b""
        for block in TextStream(self.path, []).blocks(size):
            data += block.data
            if data.strip():
                break
        return data

    def _pieces(self, piece: int) -> Iterator[tuple[bytes, int]]:
        with self.path.open("rb") as raw, _unpacked(self.path, raw) as unpacked:
            grown = 0
            while True:
                try:
                    data = unpacked.read(piece)
                except EOFError:
                    self.notes.append(f"{named(self.path)} ends in the middle of its compression; the rest is used")
                    return
                except _unpacking_errors() as error:
                    msg = (
                        f"{named(self.path)} can't be unpacked: {shown(str(error))}. Is its ending right, and the "
                        "file complete?"
                    )
                    raise InputError(msg) from error
                if not data:
                    return
                grown += len(data)
                if grown > FREE_GROWTH and grown > MOST_GROWTH * max(raw.tell(), 1):
                    msg = (
                        f"{named(self.path)} unpacks to more than {MOST_GROWTH} times its size "
                        f"({grown >> 20} MiB so far). If you trust it, unpack it yourself and give the plain file"
                    )
                    raise InputError(msg)
                yield data, raw.tell()


class _Gunzip:
    """A stream of gzip that gives what there is before it tells that the end is missing."""

    def __init__(self, raw: IO[bytes]) -> None:
        self.raw = raw
        self.inflate = zlib.decompressobj(wbits=31)
        self.waiting = b""
        self.started = False

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end.

        Raises
        ------
        EOFError
            If the input ends within a member.
        """
        while True:
            if not self.waiting:
                self.waiting = self.raw.read(1 << 16)
                if not self.waiting:
                    if self.started and not self.inflate.eof:
                        raise EOFError
                    return b""
            if self.inflate.eof:
                if not self.waiting.strip(b"\0"):
                    self.waiting = b""
                    continue
                self.inflate = zlib.decompressobj(wbits=31)
            self.started = True
            data = self.inflate.decompress(self.waiting, size)
            self.waiting = self.inflate.unused_data if self.inflate.eof else self.inflate.unconsumed_tail
            if data:
                return data


@contextmanager
def _unpacked(path: Path, raw: IO[bytes]) -> Iterator[Any]:
    suffix = path.suffix.lower()
    if suffix == ".gz":
        yield _Gunzip(raw)
    elif suffix == ".zst":
        zstandard = _zstandard()
        if zstandard is None:
            msg = (
                f"{named(path)} needs the package zstandard: pip install zstandard, or unpack it with "
                f"zstd -d {path.name}"
            )
            raise InputError(msg)
        with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as unpacked:
            yield unpacked
    else:
        yield raw


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        return None
    return zstandard


def _unpacking_errors() -> tuple[type[Exception], ...]:
    zstandard = _zstandard()
    return (OSError, zlib.error) if zstandard is None else (OSError, zlib.error, zstandard.ZstdError)


class _Decoder:
    """Bytes of a file's encoding to UTF-8, found from the first bytes."""

    def __init__(self, path: Path, head: bytes, notes: list[str]) -> None:
        self.path, self.notes = path, notes
        self.plain = True  # all that came so far was ASCII
        name = "utf-8"
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            name = "utf-16"
        elif (sides := _zeros(head[:400])) is not None:
            name = sides
        elif head.startswith(codecs.BOM_UTF8):
            name = "utf-8-sig"
        if name.startswith("utf-16"):
            notes.append("the text is UTF-16")
        self.name = name
        self._decoder = codecs.getincrementaldecoder(name)()

    def decode(self, data: bytes, *, final: bool) -> bytes:
        if self.name == "utf-8" and self.plain and data.isascii():
            return data
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            if final:
                return b"\xef\xbf\xbd"  # the file ends within a character
            if self.name != "utf-8" or not self.plain:
                msg = (
                    f"{named(self.path)} is not {self.name.upper()} throughout: {error.reason}. Convert it, "
                    f"for example: iconv -f LATIN1 -t UTF-8 {self.path.name}"
                )
                raise InputError(msg) from error
            self.name = "latin-1"
            self.notes.append("the text is not UTF-8; it was taken for Latin-1")
            self._decoder = codecs.getincrementaldecoder("latin-1")()
            text = self._decoder.decode(data, final)
        self.plain = False
        return text.encode("utf-8", "backslashreplace")

    def text(self, data: bytes) -> str:
        """Return the next part as text."""
        return self.decode(data, final=False).decode("utf-8")


def _zeros(head: bytes) -> str | None:
    """Return the kind of UTF-16 without a mark that has zeros in these places."""
    even, odd = head[0::2].count(0) / max(len(head[0::2]), 1), head[1::2].count(0) / max(len(head[1::2]), 1)
    if min(even, odd) > 0.05 or max(even, odd) < 0.5:
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def read_whole(path: Path, notes: list[str]) -> bytes:
    """Return a file that makes sense as one piece alone.

    Raises
    ------
    InputError
        If it is larger than a program should read at once.
    """
    parts, size = [], 0
    for block in TextStream(path, notes).blocks():
        size += len(block.data)
        if size > LARGEST_WHOLE:
            msg = (
                f"{named(path)} is one JSON value of more than {LARGEST_WHOLE >> 20} MiB; write it as JSON Lines, "
                f"for example: jq -c '.[]' {path.name} > rollouts.jsonl"
            )
            raise InputError(msg)
        parts.append(block.data)
    return b"".join(parts)
