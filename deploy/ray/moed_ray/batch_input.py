"""Files of batches: prompts in, answers out, a JSON object a line."""
from __future__ import annotations

import glob
import json
import os
from typing import Any

PARTS = "part-*.jsonl"


def read_rows(path: str) -> list[dict[str, Any]]:
    """The prompts of a file, each with an `id`: the row's, or the line's number counted from 1 without blank lines."""
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    with open(path, encoding="utf-8") as f:
        for line, text in enumerate(f, 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except ValueError as e:
                raise ValueError(f"{path}, line {line}: no JSON: {e}") from None
            if not isinstance(row, dict) or not (isinstance(row.get("prompt"), str) or isinstance(row.get("messages"), list)):
                raise ValueError(f"{path}, line {line}: an object with `prompt` (a text) or `messages` is needed")
            row["id"] = str(row.get("id", len(rows) + 1))
            if row["id"] in seen:
                raise ValueError(f"{path}, line {line}: the id {row['id']} is there already")
            seen.add(row["id"])
            rows.append(row)
    return rows


def done_ids(directory: str) -> set[str]:
    """The ids that have an answer, not an error. The last line of a file may be incomplete: its writer was killed."""
    done = set()
    for path in glob.glob(os.path.join(directory, PARTS)):
        with open(path, encoding="utf-8", errors="replace") as f:
            for text in f:
                try:
                    row = json.loads(text)
                    if "error" not in row:
                        done.add(row["id"])
                except (ValueError, KeyError, TypeError):
                    pass
    return done
