#!/usr/bin/env python3
"""Write trainer/data/unicode_tables.inc: the Unicode tables of the tokenizers, from Python's unicodedata.

Classes are ranges of code points: letters (L*), numbers (N*), white space, punctuation (P*), controls (Cc, Cf).
Folding is what BERT's uncased vocabulary wants: lower case, canonical decomposition (NFD), no non-spacing marks (Mn).
Hangul syllables are left out, as arithmetic decomposes them.

Usage: tools/make_unicode.py > trainer/data/unicode_tables.inc
"""
import sys
import unicodedata

LAST = 0x110000
WHITE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)}
WHITE |= {0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
CLASSES = [
    ("LETTER", lambda c: unicodedata.category(c)[0] == "L"),
    ("NUMBER", lambda c: unicodedata.category(c)[0] == "N"),
    ("SPACE", lambda c: ord(c) in WHITE),
    ("PUNCTUATION", lambda c: unicodedata.category(c)[0] == "P"),
    ("CONTROL", lambda c: unicodedata.category(c) in ("Cc", "Cf") and ord(c) not in WHITE),
]


def ranges():
    """Ranges of code points of one class, in order; code points of no class are omitted."""
    found = []
    for point in range(LAST):
        kind = next((name for name, test in CLASSES if test(chr(point))), None)
        if kind and found and found[-1][1] == point - 1 and found[-1][2] == kind:
            found[-1][1] = point
        elif kind:
            found.append([point, point, kind])
    return found


def fold(point):
    """The code points that one is folded to, or None if it is unchanged."""
    char = chr(point)
    if unicodedata.category(char) in ("Cs", "Co", "Cn") or 0xAC00 <= point <= 0xD7A3:
        return None
    parts = [ord(c) for c in unicodedata.normalize("NFD", char.lower()) if unicodedata.category(c) != "Mn"]
    return None if parts == [point] else parts


def table(head, items):
    """An array, in lines of at most 120 columns."""
    print(head + " = {")
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 120:
            print(line)
            line = "   "
        line += " " + item + ","
    print(line + "\n};")


def main():
    print(f"/* Made by tools/make_unicode.py from Unicode {unicodedata.unidata_version}; do not edit. */")
    table("static const unicode_range ranges[]", (f"{{0x{a:x}, 0x{b:x}, FGT_CHAR_{k}}}" for a, b, k in ranges()))
    folds = [(point, parts) for point in range(LAST) if (parts := fold(point)) is not None]
    pool, starts = [], []
    for _, parts in folds:
        starts.append(len(pool))
        pool.extend(parts)
    starts.append(len(pool))
    if len(pool) > 0xFFFF:
        sys.exit("the folded code points no longer fit 16-bit places")
    table("static const uint32_t fold_from[]", (f"0x{point:x}" for point, _ in folds))
    table("static const uint16_t fold_at[]", (str(at) for at in starts))
    table("static const uint32_t fold_to[]", (f"0x{part:x}" for part in pool))


if __name__ == "__main__":
    main()
