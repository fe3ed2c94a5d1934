"""BERT's WordPiece tokenizer."""

import functools
import unicodedata
from pathlib import Path
from typing import Dict, List

from . import RunError


@functools.lru_cache(maxsize=4096)
def _is_own_word(char: str) -> bool:
    """Whether a character is a word of its own: punctuation, and Chinese."""
    code = ord(char)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return (unicodedata.category(char).startswith("P") or 0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF
            or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x2CEAF or 0x2F800 <= code <= 0x2FA1F)


class WordPiece:
    """Lower case, without accents; each word split into the longest pieces of the vocabulary."""

    def __init__(self, path: Path):
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{path}: cannot read: {error}") from None
        while lines and not lines[-1].strip():
            lines.pop()
        self.pieces = {line.rstrip("\r"): i for i, line in enumerate(lines)}
        self.size = len(lines)
        self._known: Dict[str, List[int]] = {}
        missing = [name for name in ("[UNK]", "[CLS]", "[SEP]") if name not in self.pieces]
        if missing:
            raise RunError(f"{path}: not a WordPiece vocabulary: it has no line '{missing[0]}'")
        self.unknown, self.first, self.last = (self.pieces[name] for name in ("[UNK]", "[CLS]", "[SEP]"))

    def encode(self, text: str) -> List[int]:
        ids: List[int] = []
        for word in self._words(text):
            known = self._known.get(word)
            if known is None:
                known = self._known[word] = self._split_word(word)
            ids += known
        return ids

    @staticmethod
    def _words(text: str) -> List[str]:
        if not text.isascii():
            text = unicodedata.normalize("NFD", text)
            text = "".join(c for c in text if unicodedata.category(c) not in ("Mn", "Cf", "Cc", "Co") or c in "\t\n\r")
        return "".join(f" {c} " if _is_own_word(c) else c for c in text.lower()).split()

    def _split_word(self, word: str) -> List[int]:
        ids, at = [], 0
        if len(word) > 100:
            return [self.unknown]
        while at < len(word):
            mark = "##" if at else ""
            for end in range(len(word), at, -1):
                piece = self.pieces.get(mark + word[at:end])
                if piece is not None:
                    ids.append(piece)
                    at = end
                    break
            else:
                return [self.unknown]
        return ids
