"""Collects the real text of the demo model's corpus, one file a topic.

The text comes from packages of Debian 12 that are downloaded with apt-get and
unpacked into the work folder (nothing is installed, root is not needed).  Each
topic has a label, because routing is measured by topic (routing.py); each
source names its licence, because the model card lists them.

Output: WORK/corpus/TOPIC.jsonl, one {"text": ...} a document or a section of
a long document, in a fixed order.
"""
import argparse
import gzip
import html.parser
import json
import pathlib
import random
import re
import subprocess

# Topic -> (most characters taken, [(package, licence), ...]).  The limits keep
# one large package from drowning the others.
TOPICS = {
    "manual": (6_000_000, [
        ("manpages", "GPL-2+ and the free licences of single pages"),
        ("manpages-dev", "GPL-2+ and the free licences of single pages"),
        ("git-man", "GPL-2"),
        ("coreutils", "GPL-3+"),
        ("freebsd-manpages", "BSD"),
    ]),
    "debian": (4_000_000, [
        ("debian-reference-en", "GPL-2+"),
        ("debian-faq", "GPL-2+"),
        ("developers-reference", "GPL-2+"),
        ("debian-policy", "GPL-2+"),
        ("aptitude-doc-en", "GPL-2+"),
        ("maint-guide", "GPL-2+"),
        ("installation-guide-amd64", "GPL-2"),
    ]),
    "bible": (5_000_000, [("bible-kjv-text", "public domain"),
                          ("bible-kjv", "public domain (reader of the text)")]),
    "python": (4_500_000, [("libpython3.11-stdlib", "PSF-2.0"),
                           ("libpython3.11-minimal", "PSF-2.0")]),
    "pydoc": (4_500_000, [("python3.11-doc", "PSF-2.0")]),
    "sqlite": (3_000_000, [("sqlite3-doc", "public domain")]),
    "perl": (3_000_000, [("perl-doc", "Artistic or GPL-1+")]),
    "lexicon": (4_000_000, [("dict-gcide", "GPL-2+"),
                            ("dict-devil", "public domain"),
                            ("jargon-text", "public domain")]),
}
TOOLS = ["mandoc"]  # renders manual pages
SECTION_CHARS = 9000  # a long document is cut near paragraphs at this size


def fetch(work):
    """Downloads and unpacks what is not there yet."""
    debs, root = work / "debs", work / "root"
    for folder in (debs, root):
        folder.mkdir(parents=True, exist_ok=True)
    packages = TOOLS + [p for _, sources in TOPICS.values() for p, _ in sources]
    for package in packages:
        if (root / package).is_dir():
            continue
        if not list(debs.glob(f"{package}_*.deb")):
            subprocess.run(["apt-get", "download", "-qq", package], cwd=debs,
                           check=True, stderr=subprocess.DEVNULL)
        deb = next(debs.glob(f"{package}_*.deb"))
        subprocess.run(["dpkg", "-x", deb, root / package], check=True)
    return root


def read(path):
    data = path.read_bytes()
    if path.suffix in (".gz", ".dz"):
        data = gzip.decompress(data)
    return data.decode("utf-8", "replace")


class PageText(html.parser.HTMLParser):
    """The text of an HTML page, a blank line between blocks."""
    BLOCKS = set("p div h1 h2 h3 h4 h5 h6 li dt dd tr table ul ol dl pre "
                 "blockquote br section".split())
    HIDDEN = set("script style head nav title svg".split())

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.parts, self.hidden, self.pre = [], 0, 0

    def handle_starttag(self, tag, attrs):
        if tag in self.HIDDEN:
            self.hidden += 1
        if tag == "pre":
            self.pre += 1
        if tag in self.BLOCKS:
            self.parts.append("\n" if tag in ("br", "tr", "li") else "\n\n")
        if tag == "li":
            self.parts.append("- ")
        if tag in ("td", "th"):
            self.parts.append(" ")

    def handle_endtag(self, tag):
        if tag in self.HIDDEN and self.hidden:
            self.hidden -= 1
        if tag == "pre" and self.pre:
            self.pre -= 1
        if tag in self.BLOCKS:
            self.parts.append("\n\n" if tag not in ("li", "tr") else "\n")

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(data if self.pre else re.sub(r"\s+", " ", data))


def page_text(path):
    parser = PageText()
    parser.feed(read(path))
    return "".join(parser.parts)


def tidy(text):
    text = text.replace("\r", "").replace("\u00a0", " ").replace("\u00ad", "")
    text = re.sub("[\u2018\u2019]", "'", text)
    text = re.sub("[\u201c\u201d]", '"', text)
    text = re.sub("[\u2010\u2011\u2013]", "-", text)
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def unwrap(text):
    """Joins the lines of plain paragraphs; what is indented stays as it is."""
    blocks = []
    for block in tidy(text).split("\n\n"):
        lines = block.strip("\n").split("\n")
        if len(lines) > 1 and all(re.match(r"[\w\"'(*`]", x) for x in lines):
            block = " ".join(lines)
        blocks.append(block)
    return "\n\n".join(blocks)


def sections(text):
    """Cuts a long text into sections that end at a blank line."""
    out, size = [], 0
    for block in text.split("\n\n"):
        if not out or size + len(block) > SECTION_CHARS:
            out.append([])
            size = 0
        out[-1].append(block)
        size += len(block) + 2
    return ["\n\n".join(x) for x in out]


def manual_pages(root):
    mandoc = root / "mandoc/usr/bin/mandoc"
    for package, _ in TOPICS["manual"][1]:
        pages = sorted((root / package / "usr/share/man").glob("man*/*.gz"))
        for page in pages:
            source = "" if page.is_symlink() else read(page)
            if len(source) < 400:  # a link to another page
                continue
            done = subprocess.run([mandoc, "-T", "utf8", "-O", "width=76"],
                                  input=source.encode(), capture_output=True)
            yield re.sub(".\b", "", done.stdout.decode("utf-8", "replace"))


def debian_documents(root):
    texts = [root / "debian-reference-en/usr/share/debian-reference/debian-reference.en.txt.gz",
             root / "developers-reference/usr/share/developers-reference/developers-reference.txt.gz",
             root / "debian-policy/usr/share/doc/debian-policy/policy.txt.gz"]
    texts += sorted((root / "debian-faq").rglob("*.txt.gz"))
    for path in texts:
        text = re.sub(r"\n *[|+][^\n]*", "", read(path))
        yield unwrap(re.sub(r"\n {1,4}(?=\S)", "\n", text))
    for folder in ("aptitude-doc-en", "maint-guide"):
        for path in sorted((root / folder).rglob("*.html")):
            yield page_text(path)
    for path in sorted((root / "installation-guide-amd64").rglob("en/*.html")):
        yield page_text(path)


def bible_chapters(root):
    reader = root / "bible-kjv/usr/bin/bible"
    text = subprocess.run([reader, "-f", "-p", root / "bible-kjv-text/usr/lib",
                           "gen1:1-rev22:21"], capture_output=True,
                          check=True).stdout.decode("latin-1")
    chapter, verses = None, []
    for line in text.split("\n"):
        found = re.match(r"(\w+?)(\d+):(\d+) (.*)", line.strip())
        if not found:
            continue
        book, number, verse, words = found.groups()
        if (book, number) != chapter and verses:
            yield "\n".join(verses)
            verses = []
        chapter = (book, number)
        verses.append(words)
    yield "\n".join(verses)


def python_sources(root):
    for package, _ in TOPICS["python"][1]:
        for path in sorted((root / package).rglob("*.py")):
            if path.is_symlink() or "encodings" in path.parts:
                continue
            text = read(path)
            if len(text) > 1500:
                yield text


def python_documents(root):
    folder = root / "python3.11-doc/usr/share/doc/python3.11-doc/html/_sources"
    for path in sorted(folder.rglob("*.rst.txt")):
        if "whatsnew" in path.parts or path.name == "license.rst.txt":
            continue
        text = re.sub(r"\.\. (sectionauthor|moduleauthor|index)::[^\n]*\n", "", read(path))
        yield unwrap(re.sub(r":[\w:]+:`~?([^`<]*)(?: <[^`]*>)?`", r"`\1`", text))


def sqlite_documents(root):
    for path in sorted((root / "sqlite3-doc").rglob("*.html")):
        if not re.search("crossref|keyword_index|releaselog|vdbe|changes|toc|index", str(path)):
            yield page_text(path)


def perl_documents(root):
    for path in sorted((root / "perl-doc").rglob("perl*.pod")):
        if re.match(r"perl(\d.*delta|toc|jp|ko|cn|tw|hist|gpl|artistic|uniprops)", path.name):
            continue
        text = read(path)
        for _ in range(3):
            text = re.sub(r"[BCFILXSZ]<([^<>]*)>", r"\1", text)
        text = text.replace("E<gt>", ">").replace("E<lt>", "<")
        text = re.sub(r"\n=(?:head\d|item) *", "\n", text)
        yield unwrap(re.sub(r"\n=[^\n]*\n", "\n", text))


def lexicon_entries(root):
    jargon = read(next((root / "jargon-text").rglob("jargon.txt.gz")))
    for entry in re.split(r"\n(?= {0,3}\S[^\n]*: [a-z./, ]*\n)", jargon[120_000:]):
        if 150 < len(entry) < SECTION_CHARS:
            yield unwrap(re.sub(r"\n +", "\n", entry))
    devil = read(next((root / "dict-devil").rglob("*.dict.dz")))
    for entry in re.split(r"\n\n(?=[A-Z'-]+, )", devil)[1:]:
        yield unwrap(entry)
    gcide = read(next((root / "dict-gcide").rglob("*.dict.dz")))
    entries = re.split(r"\n(?=[A-Z][\w -]* \\)", gcide)[1:]
    random.Random(1).shuffle(entries)
    for entry in entries:
        entry = re.sub(r" *\[(1913 Webster|PJC|WordNet[^\]]*|Webster[^\]]*|R\.|Obs\.)[^\]]*\]", "", entry)
        entry = re.sub(r"\\[^\\]*\\,?", "", entry, count=1)
        if len(entry) > 250:
            yield re.sub(r"\n +", "\n", entry).strip() + "\n"


READERS = {
    "manual": manual_pages, "debian": debian_documents, "bible": bible_chapters,
    "python": python_sources, "pydoc": python_documents,
    "sqlite": sqlite_documents, "perl": perl_documents,
    "lexicon": lexicon_entries,
}


def collect(topic, root, seed):
    limit, _ = TOPICS[topic]
    found = {s: 1 for text in READERS[topic](root) for s in sections(tidy(text)) if len(s) > 120}
    found = list(found)  # each text once, in the order of reading
    random.Random(f"{seed} {topic}").shuffle(found)
    taken, size = [], 0
    for section in found:
        if size + len(section) > limit:
            break
        taken.append(section)
        size += len(section)
    return taken, sum(map(len, found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=pathlib.Path, required=True, help="work folder")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    root = fetch(args.work)
    out = args.work / "corpus"
    out.mkdir(exist_ok=True)
    for topic in TOPICS:
        taken, there = collect(topic, root, args.seed)
        with open(out / f"{topic}.jsonl", "w") as f:
            for text in taken:
                f.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        print(f"{topic:8} {len(taken):6} sections {sum(map(len, taken)):9} of {there:9} characters",
              flush=True)


if __name__ == "__main__":
    main()
