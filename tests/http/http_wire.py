"""Raw sockets against a running moed-http: what no client library would send, and what none would show.

usage: http_wire.py PORT MOED PID   (PID: of moed-http)
The checks are in the wire_*.py, one a subject. Each prints its name; the first that fails ends the program with its difference."""
import time
import wire_bodies
import wire_chats
import wire_completions
import wire_connections
import wire_deaths
import wire_errors
import wire_forms
import wire_framing
import wire_llama
import wire_models
import wire_sampling
import wire_scores

SUBJECTS = (wire_completions, wire_models, wire_chats, wire_llama, wire_sampling, wire_scores, wire_forms, wire_errors,
            wire_bodies, wire_connections, wire_framing, wire_deaths)


def main():
    for subject in SUBJECTS:
        for name, check in list(vars(subject).items()):
            if name.startswith("check_"):
                begun = time.monotonic()
                check()
                print(f"{name} {time.monotonic() - begun:.2f} s", flush=True)


main()
