"""Code float32 vectors bit for bit, in about as many bytes as they hold information.

Weights and updates use few exponents, so the exponents are entropy-coded. The mantissas of weights are
noise and are written as they are. :mod:`sparsona.wire.fields` takes numbers apart. A vector of few distinct numbers
becomes a palette and indices into it; a vector of powers of two becomes exponents and signs; of a vector with many
zeros only the places and values of the others are coded. A vector that does not become smaller is written raw.
The coder sees bit patterns only, so NaN payloads, signed zeros and denormals need no special case.
"""

from collections.abc import Callable

import numpy as np

from sparsona.compiled import KERNEL, compiled, i64
from sparsona.errors import WireError
from sparsona.message import Vector
from sparsona.wire import fields, positions, rans, symbols
from sparsona.wire.buffers import Bytes, Reader, varint
from sparsona.wire.fields import Patterns
from sparsona.wire.rans import Contexts, Ints, Symbols

RAW, PALETTE, FIELDS, HOLES, POWERS = range(5)
_MANTISSA = np.uint32(0x7FFFFF)
_FEW = 32  # shorter vectors are written raw: a table would take more than it saves
_SAMPLE = 2048  # size of the sample of a long vector from which the cost of coding all of it is estimated
_MANY = 4096  # in longer vectors with many zeros, only the numbers that are not zero are coded as fields


def encode(values: Vector) -> bytes:
    """Return a byte that names the way, and the numbers."""
    return encode_below(values, 2 + 4 * len(values)) or raw(values)


def encode_below(values: Vector, below: int) -> bytes | None:
    """Encode as :func:`encode` does if that takes fewer than `below` bytes; else return None, and sooner."""
    return _encode(np.require(values, np.float32, KERNEL).view(np.uint32), True, below)


def raw(values: Vector) -> bytes:
    """Return the numbers as they are: nothing is saved and no time is lost."""
    return bytes([RAW]) + np.asarray(values, "<f4").tobytes()


def _encode(patterns: Patterns, holes: bool, below: int) -> bytes | None:
    best: bytes | None = None
    if 1 + 4 * len(patterns) < below:
        best = raw(patterns.view(np.float32))
        below = len(best)
    sparse = holes and 4 * np.count_nonzero(patterns) <= 3 * len(patterns) <= positions.MOST
    ways: list[Callable[[Patterns, int], bytes | None]] = []
    if len(patterns) >= 4:
        ways = [_encode_palette, _encode_holes] if sparse else [_encode_palette]
    if len(patterns) >= 4 and not (patterns & _MANTISSA).any():
        ways.append(_encode_powers)
    elif len(patterns) >= _FEW and not (sparse and len(patterns) > _MANY):
        ways.append(_encode_fields)
    for way in ways:
        body = way(patterns, below)
        if body is not None and len(body) < below:
            best, below = body, len(body)
    return best


def decode(reader: Reader, count: int) -> Vector:
    """Return the next `count` numbers. The caller has claimed them."""
    return _decode(reader, count, holes=True).view(np.float32)


def _decode(reader: Reader, count: int, holes: bool) -> Patterns:
    way = reader.byte("the coding of floats")
    if way == RAW:
        return reader.array("<u4", count, "raw floats").astype(np.uint32)
    if way == PALETTE:
        return _decode_palette(reader, count)
    if way == FIELDS:
        return _decode_fields(reader, count)
    if way == POWERS:
        return _decode_powers(reader, count)
    if way == HOLES and holes:
        return _decode_holes(reader, count)
    raise WireError(f"floats are coded in way {way}, which does not exist")


def _encode_holes(patterns: Patterns, below: int) -> bytes | None:
    """Code the places of the numbers that are not zero, and these numbers."""
    present = np.flatnonzero(patterns)
    start = bytes([HOLES]) + varint(len(present)) + positions.encode(len(patterns), present, None).data
    body = _encode(patterns[present], False, below - len(start))
    return None if body is None else start + body


def _decode_holes(reader: Reader, count: int) -> Patterns:
    filled = reader.varint("the number of floats that are not zero", most=count)
    places = positions.decode(reader, count, filled, None)
    out = np.zeros(count, np.uint32)
    out[places] = _decode(reader, filled, holes=False)
    return out


@compiled
def _distinct(patterns: Patterns) -> Patterns:
    """Return the distinct patterns in the order of their first use, at most 257 of them."""
    found = np.zeros(257, np.uint32)
    table = np.zeros(1024, np.int64)  # one more than the place of a pattern in `found`
    count = 0
    for pattern in patterns:
        at = (i64(pattern) * 0x9E3779B1 >> 16) & 1023
        while table[at] > 0 and found[table[at] - 1] != pattern:
            at = (at + 1) & 1023
        if table[at] == 0:
            found[count] = pattern
            count += 1
            table[at] = count
            if count == 257:
                break
    return found[:count]


def _encode_palette(patterns: Patterns, below: int) -> bytes | None:
    colours = np.sort(_distinct(patterns))
    if len(colours) > min(256, len(patterns) // 2):
        return None
    start = bytes([PALETTE]) + varint(len(colours)) + colours.astype("<u4", copy=False).tobytes()
    if len(colours) == 1:
        return start
    indices = np.searchsorted(colours, patterns).astype(np.uint16)
    body = symbols.encode(indices, np.arange(len(colours), dtype=np.uint8), below - len(start))
    return None if body is None else start + body


def _decode_palette(reader: Reader, count: int) -> Patterns:
    size = reader.varint("the size of a palette", most=256)
    if size == 0:
        raise WireError("a palette is empty")
    colours = reader.array("<u4", size, "a palette").astype(np.uint32)
    if size == 1:
        return np.full(count, colours[0], np.uint32)
    return colours[symbols.decode(reader, count, np.arange(size, dtype=np.uint8), "palette indices")]


def _encode_powers(patterns: Patterns, below: int) -> bytes | None:
    """Code numbers without mantissas (powers of two, zeros, infinities) as exponents and signs."""
    exponents = (patterns >> np.uint32(23) & np.uint32(255)).astype(np.uint8)
    exponent_of = np.unique(exponents)
    signs = fields.write_signs(patterns)
    start = bytes([POWERS, len(signs) > 0]) + _used(exponent_of).tobytes()
    end = (
        varint(len(signs)) + signs.tobytes()
        if len(signs)
        else np.packbits(patterns >> 31 > 0, bitorder="little").tobytes()
    )
    body: bytes | None = b""
    if len(exponent_of) > 1:
        ranks = np.searchsorted(exponent_of, exponents).astype(np.uint16)
        body = symbols.encode(ranks, _levels(len(exponent_of), 0), below - len(start) - len(end))
    return None if body is None else start + body + end


def _decode_powers(reader: Reader, count: int) -> Patterns:
    signed = reader.byte("the flags of powers")
    if signed > 1:
        raise WireError(f"the flags of powers are {signed}, which means nothing")
    exponent_of = np.flatnonzero(np.unpackbits(symbols.read_bytes(reader, 32, "exponents"))).astype(np.uint8)
    if not 0 < len(exponent_of) <= count:
        raise WireError(f"{count} powers are coded with {len(exponent_of)} exponents")
    ranks = np.zeros(count, np.uint16)
    if len(exponent_of) > 1:
        ranks = symbols.decode(reader, count, _levels(len(exponent_of), 0), "exponents")
    if signed:
        data = reader.array("u1", reader.varint("the length of signs", most=reader.remaining), "signs")
        signs = fields.read_signs(data, (exponent_of == 0).astype(np.uint8)[ranks])
    else:
        signs = np.unpackbits(reader.array("u1", (count + 7) // 8, "signs"), bitorder="little")
        if signs[count:].any():
            raise WireError("signs go on beyond their end")
    return signs[:count].astype(np.uint32) << np.uint32(31) | exponent_of[ranks].astype(np.uint32) << np.uint32(23)


HAZARD: Ints = np.array([0] + [symbols.STEPS[(b + 1) % 16] << (b + 1) // 16 >> 8 for b in range(1, 256)], np.int64)
"""The probability of a one that each byte stands for, out of 2**24: 0 is never, 255 always, 239 one half."""


@compiled
def _nearest_hazard(one: int, both: int) -> int:
    target = (one << 24) // both
    best = 1
    for byte in range(2, 255):
        if abs(HAZARD[byte] - target) < abs(HAZARD[best] - target):
            best = byte
    return best


@compiled
def _quantise_hazards(places: Ints) -> Bytes:
    out = np.zeros(len(places), np.uint8)
    for place in range(len(places)):
        zero, one = places[place, 0], places[place, 1]
        if one:
            out[place] = _nearest_hazard(one, zero + one) if zero else 255
    return out


@compiled
def _zero_weights(hazards: Bytes, exponent_of: Contexts, width: int) -> Ints:
    """Return weights for the number of trailing zeros, by exponent; each possible number has a positive weight."""
    out = np.zeros((len(exponent_of), width + 1), np.int64)
    for rank in range(len(exponent_of)):
        left, possible = 1 << 24, True
        for bit in range(width):
            byte = hazards[exponent_of[rank] + bit]
            if possible and byte:
                one = max(1, (left * HAZARD[byte]) >> 24)
                out[rank, bit] = one
                left = max(1, left - one)
                possible = byte < 255
        if possible:
            out[rank, width] = left
    return out


def _survey(patterns: Patterns) -> tuple[Contexts, Contexts, Ints, int, int, int]:
    """Return exponents, their ranks, trailing zeros of the mantissas, and the cheapest way without signs."""
    finest, ended = fields.survey(patterns)
    exponent_of = np.flatnonzero(ended.any(axis=1)).astype(np.uint8)
    ranks = np.zeros(256, np.uint8)
    ranks[exponent_of] = np.arange(len(exponent_of))
    zeros: Ints = ended[exponent_of].astype(np.int64)
    counts: Ints = finest.reshape(256, -1)[exponent_of].astype(np.int64).reshape(-1)
    return exponent_of, ranks, zeros, *fields.choose(counts, zeros, exponent_of)


def _encode_fields(patterns: Patterns, below: int) -> bytes | None:
    if len(patterns) >= 4 * _SAMPLE and below < 4 * len(patterns):
        sample = np.ascontiguousarray(patterns[:: len(patterns) // _SAMPLE | 1])
        # contexts will hardly save more than the signs cost
        if _survey(sample)[3] * len(patterns) >= below * len(sample):
            return None
    exponent_of, ranks, zeros, guess, extra, coded = _survey(patterns)
    least = guess - 3 * len(patterns) // 8  # contexts, of which there are at most eight, save three bits a symbol
    if least >= below:
        return None
    signs = fields.write_signs(patterns)
    signed = len(signs) > 0
    if least + (len(signs) if signed else len(patterns) // 8) >= below:
        return None
    tops, ends, own, words, plain = fields.split(patterns, ranks, extra, bool(coded), signed)
    left = below - len(signs) - plain // 8
    # the cost of symbols is known to a few bytes before they are coded
    body = symbols.encode(tops, _levels(len(exponent_of), extra), left + 16 + len(patterns) // 16384)
    if body is None:
        return None
    flags = extra | coded << 3 | signed << 4
    out: list[bytes | memoryview] = [bytes([FIELDS, flags]), _used(exponent_of).data, body]
    if coded:
        bits = _zero_bits(len(patterns), exponent_of)
        out.append(_encode_ends(ends, own, zeros, exponent_of, 23 - extra, bits))
    if signed:
        out += [varint(len(signs)), signs.data]
    out.append(words.astype("<u4", copy=False).view(np.uint8).data[: (plain + 7) // 8])
    return b"".join(out)


def _used(exponent_of: Contexts) -> Bytes:
    """Return the exponents that occur as a shortened bitmap, the highest bit of a byte first."""
    occurs = np.zeros(256, np.bool_)
    occurs[exponent_of] = True
    return symbols.shortened(np.packbits(occurs))


def _encode_ends(ends: Symbols, own: Contexts, zeros: Ints, exponent_of: Contexts, width: int, bits: int) -> bytes:
    """Encode the number of trailing zeros of each mantissa, given the rank of its exponent."""
    hazards = _quantise_hazards(fields.place_counts(zeros, exponent_of, width))
    freq = rans.frequencies(_zero_weights(hazards, exponent_of, width), bits)
    words = rans.push(ends, own, freq, rans.starts(freq), bits)
    return symbols.shortened(hazards).tobytes() + symbols.with_length(words)


def _decode_fields(reader: Reader, count: int) -> Patterns:
    flags = reader.byte("the flags of floats")
    extra, coded, signed = flags & 7, flags >> 3 & 1, flags >> 4 & 1
    if flags > 31:
        raise WireError(f"the flags of floats are {flags}, which means nothing")
    exponent_of = np.flatnonzero(np.unpackbits(symbols.read_bytes(reader, 32, "exponents"))).astype(np.uint8)
    if not 0 < len(exponent_of) <= count:
        raise WireError(f"{count} floats are coded with {len(exponent_of)} exponents")
    if extra > fields.most_extra(count, len(exponent_of)):
        raise WireError(f"{extra} bits of mantissas are coded, which is too many for {count} floats")
    tops = symbols.decode(reader, count, _levels(len(exponent_of), extra), "exponents")
    own = (tops >> extra).astype(np.uint8) if coded or signed else tops.view(np.uint8)
    ends = _decode_ends(reader, own, exponent_of, 23 - extra) if coded else np.zeros(0, np.uint16)
    signs = np.zeros(0, np.uint8)
    if signed:
        data = reader.array("u1", reader.varint("the length of signs", most=reader.remaining), "signs")
        signs = fields.read_signs(data, (exponent_of == 0).astype(np.uint8)[own])
    plain = fields.count_plain(ends, 23 - extra) if coded else count * (23 - extra)
    rest = bytes(reader.take((plain + (0 if signed else count) + 7) // 8, "mantissas"))
    words = np.frombuffer(rest + bytes(-len(rest) % 4), "<u4").astype(np.uint32)
    return fields.unite(tops, ends, signs, words, exponent_of, extra)


def _decode_ends(reader: Reader, own: Contexts, exponent_of: Contexts, width: int) -> Symbols:
    """Decode the number of trailing zeros of each mantissa, given the rank of its exponent."""
    hazards = symbols.read_bytes(reader, fields.PLACES, "zeros at the end")
    bits = _zero_bits(len(own), exponent_of)
    stream = symbols.read_words(reader, len(own), "zeros at the end")
    freq = rans.frequencies(_zero_weights(hazards, exponent_of, width), bits)
    ends, fine = rans.pull(stream, own, freq, rans.starts(freq), rans.slots(freq, bits), bits)
    if not fine:
        raise WireError("zeros at the end do not fit their table of frequencies")
    return ends


def _zero_bits(count: int, exponent_of: Contexts) -> int:
    """Return log2 of the sum of the frequencies of trailing zeros: every exponent has a table."""
    return symbols.table_bits(8 * count, len(exponent_of), 12)


def _levels(exponents: int, extra: int) -> Contexts:
    """Return the level of each symbol: the rank of its exponent."""
    return np.repeat(np.arange(exponents, dtype=np.uint8), 1 << extra)
