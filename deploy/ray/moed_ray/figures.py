"""A node's figures for the autoscaler, out of Prometheus' text."""
from __future__ import annotations

import re

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{[^}]*\})? (\S+)$", re.M)


class Figures:
    def __init__(self) -> None:
        self._suspended_before: float | None = None

    def read(self, text: str) -> dict[str, float]:
        """requests: those that run or wait. kv_used: the share of the KV pool that conversations fill. suspended:
        requests that were put aside since the last call."""
        kv = {"used": 0.0, "free": 0.0}
        requests = suspended = 0.0
        for name, labels, value in _SAMPLE.findall(text):
            if name in ("moed_worker_requests_running", "moed_worker_requests_waiting"):
                requests += float(value)
            elif name == "moed_worker_suspended_total":
                suspended = float(value)
            elif name == "moed_memd_kv_bytes":
                for state in kv:
                    if f'state="{state}"' in labels:
                        kv[state] = float(value)
        before, self._suspended_before = self._suspended_before, suspended
        new = suspended - before if before is not None and suspended >= before else 0.0
        whole = kv["used"] + kv["free"]
        return {"requests": requests, "kv_used": kv["used"] / whole if whole else 0.0, "suspended": new}
