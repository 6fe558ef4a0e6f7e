#!/usr/bin/env python3
"""Prints an SBOM in SPDX 2.3 (JSON): the release's files, the programs in the binary archive, and the Debian packages whose libraries
the programs load. usage: sbom.py VERSION INSTALLED OUTPUT    (INSTALLED: the unpacked binary archive; OUTPUT: the release's files)"""
from __future__ import annotations

import datetime
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
from typing import Any, Iterator

AUTHORS = "Organization: The moed authors"


def sha256(path: str) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def spdx_id(kind: str, name: str) -> str:
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def programs(installed: str) -> Iterator[str]:
    """Files in the archive that are ELF files."""
    for folder, _, names in sorted(os.walk(installed)):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                continue
            with open(path, "rb") as f:
                if f.read(4) == b"\x7fELF":
                    yield path


def libraries(program: str) -> set[str]:
    """The files that the loader would take for a program's needed libraries."""
    out = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return {os.path.realpath(m) for m in re.findall(r"(?:=> )?(/\S+) \(0x", out)}


@functools.cache
def owner(library: str) -> tuple[str, str] | None:
    """The Debian package of a library, and its version. None: it is none of Debian's, as libmoed itself."""
    for path in (library, library.removeprefix("/usr")):
        found = subprocess.run(["dpkg-query", "-S", path], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            package = found.stdout.split(": ")[0].split(", ")[0]
            version = subprocess.run(["dpkg-query", "-W", "-f", "${source:Package} ${Version}", package], capture_output=True, text=True, check=True)
            return package.split(":")[0], version.stdout.split(" ")[1]
    return None


def package(name: str, version: str, **more: Any) -> dict[str, Any]:
    return {"SPDXID": spdx_id("Package", name), "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION", **more}


def document(version: str, installed: str, output: str) -> dict[str, Any]:
    moed = package("moed", version, supplier=AUTHORS, licenseDeclared="Apache-2.0", primaryPackagePurpose="APPLICATION")
    packages, relations = [moed], [("SPDXRef-DOCUMENT", "DESCRIBES", str(moed["SPDXID"]))]
    files: list[dict[str, Any]] = []
    for name in sorted(os.listdir(output)):
        path = os.path.join(output, name)
        packages.append(package(name, version, supplier=AUTHORS, licenseDeclared="Apache-2.0", packageFileName=name,
                                checksums=[{"algorithm": "SHA256", "checksumValue": sha256(path)}]))
        relations.append((packages[-1]["SPDXID"], "PACKAGE_OF", moed["SPDXID"]))
    loaded: dict[str, set[tuple[str, str]]] = {}
    for path in programs(installed):
        name = "./" + os.path.relpath(path, installed)
        files.append({"SPDXID": spdx_id("File", name), "fileName": name, "fileTypes": ["BINARY"], "licenseConcluded": "Apache-2.0",
                      "copyrightText": "NOASSERTION", "checksums": [{"algorithm": "SHA256", "checksumValue": sha256(path)},
                                                                   {"algorithm": "SHA1", "checksumValue": sha1(path)}]})
        relations.append((moed["SPDXID"], "CONTAINS", files[-1]["SPDXID"]))
        loaded[files[-1]["SPDXID"]] = {o for o in map(owner, libraries(path)) if o}
    for name, library_version in sorted(set().union(*loaded.values())):
        purl = f"pkg:deb/debian/{name}@{library_version.replace('+', '%2B')}"
        packages.append(package(name, library_version, licenseDeclared="NOASSERTION", supplier="Organization: Debian", externalRefs=[
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]))
    for file_id, owners in loaded.items():
        relations += [(file_id, "DYNAMIC_LINK", spdx_id("Package", name)) for name, _ in sorted(owners)]
    when = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"moed-{version}",
        "documentNamespace": f"https://moed.example/spdx/moed-{version}-{sha256_of_all(files)[:16]}",
        "creationInfo": {"created": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": [AUTHORS, "Tool: deploy/sbom.py"]},
        "packages": packages, "files": files,
        "relationships": [{"spdxElementId": a, "relationshipType": how, "relatedSpdxElement": b} for a, how, b in relations],
    }


def sha1(path: str) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha1").hexdigest()


def sha256_of_all(files: list[dict[str, Any]]) -> str:
    return hashlib.sha256("".join(f["checksums"][0]["checksumValue"] for f in files).encode()).hexdigest()


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    json.dump(document(*sys.argv[1:]), sys.stdout, indent=1, sort_keys=True)
    print()


main()
