"""Texts too long to keep or show whole."""


def shortened(text: str, longest: int) -> str:
    """``text`` of at most ``longest`` characters: its beginning and its end, which holds the answer.

    Between them stands how many characters are missing.
    """
    if len(text) <= longest:
        return text
    gap = f" … ({len(text)} characters in all) … "
    kept = max(0, longest - len(gap))
    return text[: kept - kept // 2] + gap + text[len(text) - kept // 2 :]
