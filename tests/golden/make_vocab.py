#!/usr/bin/env python3
"""Makes vocab-small.gguf, vocab-small-spm.gguf, vocab-small-gemma.gguf and vocab-small.cases.

The vocabularies are trained here and the ids come from the libraries that models are made with, so
they are independent of moed's tokenizer:

- vocab-small.gguf: byte-level BPE trained by Hugging Face's `tokenizers`, which also gives the
  ids for each pre-tokenizer: each is built here from the expressions as the models publish them.
- vocab-small-spm.gguf: a BPE model with byte fallback trained by `sentencepiece`.

- vocab-small-gemma.gguf: BPE of characters with byte fallback, as Gemma 4's, trained and encoded
  by `tokenizers`.

vocab-small.cases has one case a line, four fields separated by a tab: the file's name, the
pre-tokenizer (- for the file's own), the text in hexadecimal, the ids separated by commas. Special
tokens are parsed, no begin or end token is added.

Run it in a virtual environment with: tokenizers==0.23.3 sentencepiece==0.2.3 gguf==0.19.0
(Python 3.11: its Unicode tables are those of the characters used).
"""

import io
import json
import random
import sys
import unicodedata
from pathlib import Path

import sentencepiece
from gguf import GGUFWriter, TokenType
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = Path(__file__).parent
SEED = 20240229
CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>system"]
USER_DEFINED = ["<tool_call>", "    "]
# A token that no merges lead to: found only where a whole piece is looked up first.
UNMERGED = " unmergeable"

CORPUS = """
A memory daemon loads the model once and keeps it. Whoever needs the weights attaches, reads them and
goes away again; nothing is read from the disk a second time. The worker computes attention and the
gate, the executor computes the experts, and the answer is streamed to the frontend token by token.
It's simple, isn't it? We've seen that they're fast, you'll see that I'm right, and she'd agree.
In 1999 there were 123456 tokens, 42 experts, 8 of them active; 3.14159 is not 2.71828, is it?
for (int i = 0; i < 10; ++i) { total += weight[i] * value[i]; }   // the sum of all products
def answer(question):\n    if not question:\n        return None\n    return question.strip()\n
HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{"name": "moed", "ok": true, "list": [1, 2, 3]}
Der Speicher ist groß genug für alle Gewichte, und die schönen Größen ändern sich übrigens nie.
Le modèle est chargé une seule fois; où qu'il soit, il répond à tous ceux qui l'interrogent.
Модель загружается один раз, и каждый процесс может читать веса без копирования.
模型只加载一次，所有进程共享内存中的权重。専門家の重みはメモリに残り、トークンごとに選ばれる。
모델은 한 번만 로드되고 모든 프로세스가 메모리를 공유합니다. العالم كبير والنموذج صغير
""" * 3

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CL100K = (CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}NOTHAN]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}NOTHAN]"
O200K = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CONTRACTION + r"?|[^\r\n\p{L}\p{N}]?"
         + UPPER + "+" + LOWER + "*" + CONTRACTION + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[ENDS]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK_V3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
               r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
PRE_TOKENIZERS = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "gpt-2": [GPT2],
    "qwen2": [CL100K.replace("DIGITS", r"\p{N}")],
    "qwen35": [
        CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+",
    ],
    "llama-bpe": [CL100K.replace("DIGITS", r"\p{N}{1,3}")],
    "gpt-4o": [O200K.replace("NOTHAN", "").replace("ENDS", r"\r\n/")],
    "tekken": [
        O200K.replace("NOTHAN", "").replace("ENDS", r"\r\n/").replace(CONTRACTION + "?", "")
        .replace(r"\p{N}{1,3}", r"\p{N}"),
    ],
    "kimi-k2": [r"[\p{Han}]+|" + O200K.replace("NOTHAN", r"&&[^\p{Han}]").replace("ENDS", r"\r\n")],
    "bailingmoe2": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    ],
    "exaone-moe": [
        CONTRACTION + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
        r"|\s*[\r\n]|\s+(?!\S)|\s+",
    ],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        DEEPSEEK_V3,
    ],
    # As llama.cpp cuts for it; the published file was not at hand.
    "afmoe": [
        r"\p{N}+",
        r"\p{N}{1,3}(?=(?:\p{N}{3})*\z)",
        "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
        "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
        "\u1100-\u11ff]+",
        DEEPSEEK_V3,
    ],
    "laguna": [r"[^\n]+|[\n]+", CL100K.replace("DIGITS", r"\p{N}")],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200K.replace("NOTHAN", "").replace("ENDS", r"\r\n/")],
}


def pre_tokenizer(name):
    cuts = [pre_tokenizers.Split(Regex(p), "isolated") for p in PRE_TOKENIZERS[name]]
    return pre_tokenizers.Sequence(
        cuts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train_bpe():
    """(tokens in the order of their ids, merges)."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer("qwen2")
    t.train_from_iterator([CORPUS], trainers.BpeTrainer(
        vocab_size=700, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(t.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens + [UNMERGED.replace(" ", "\u0120")], [tuple(m) for m in model["merges"]]


def hugging_face(tokens, merges, pre):
    t = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges,
                             ignore_merges=pre in ("llama-bpe", "tekken")))
    t.pre_tokenizer = pre_tokenizer(pre)
    t.add_special_tokens([AddedToken(text, normalized=False) for text in CONTROL])
    t.add_tokens([AddedToken(text, normalized=False) for text in USER_DEFINED])
    return t


def write_bpe(path, tokens, merges):
    w = GGUFWriter(path, "qwen2moe")
    w.add_name("vocab-small")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens + CONTROL + USER_DEFINED)
    w.add_token_types([TokenType.NORMAL] * len(tokens) + [TokenType.CONTROL] * len(CONTROL)
                      + [TokenType.USER_DEFINED] * len(USER_DEFINED))
    w.add_token_merges([" ".join(m) for m in merges])
    w.add_eos_token_id(len(tokens) + 1)
    w.add_add_bos_token(False)
    finish(w)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def train_spm():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()), model_writer=model, model_type="bpe",
        vocab_size=900, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=True, character_coverage=0.98,
        user_defined_symbols=["<tool_call>"], minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def write_spm(path, sp):
    def kind(i):
        if sp.is_unknown(i):
            return TokenType.UNKNOWN
        if sp.is_control(i):
            return TokenType.CONTROL
        if sp.is_byte(i):
            return TokenType.BYTE
        return TokenType.USER_DEFINED if sp.id_to_piece(i) == "<tool_call>" else TokenType.NORMAL

    ids = range(sp.get_piece_size())
    w = GGUFWriter(path, "llama")
    w.add_name("vocab-small-spm")
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([sp.id_to_piece(i) for i in ids])
    w.add_token_scores([sp.get_score(i) for i in ids])
    w.add_token_types([kind(i) for i in ids])
    w.add_bos_token_id(sp.bos_id())
    w.add_eos_token_id(sp.eos_id())
    w.add_unk_token_id(sp.unk_id())
    finish(w)


GEMMA_SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>"]
GEMMA_TURNS = ["<|turn>", "<turn|>", "<|tool_response>"]
SPACE = "\u2581"


def train_gemma():
    """(tokens in the order of their ids, merges). Words and runs of newlines are learnt apart; the
    published tokenizer has no such cut and needs none, because no merge crosses it."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Replace(" ", SPACE)
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex("\n+"), "isolated"), pre_tokenizers.Split(SPACE, "merged_with_next")])
    t.train_from_iterator([CORPUS + "    \n\n\n" * 9], trainers.BpeTrainer(vocab_size=600, show_progress=False))
    model = json.loads(t.to_str())["model"]
    tokens = GEMMA_SPECIAL + [f"<0x{b:02X}>" for b in range(256)]
    return tokens + sorted(model["vocab"], key=model["vocab"].get), [tuple(m) for m in model["merges"]]


def hugging_face_gemma(tokens, merges):
    t = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges,
                             byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Replace(" ", SPACE)
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.add_special_tokens([AddedToken(text, normalized=False) for text in GEMMA_SPECIAL + GEMMA_TURNS])
    return t


def write_gemma(path, tokens, merges):
    w = GGUFWriter(path, "gemma4")
    w.add_name("vocab-small-gemma")
    w.add_tokenizer_model("gemma4")
    w.add_token_list(tokens + GEMMA_TURNS)
    w.add_token_types([TokenType.CONTROL] * len(GEMMA_SPECIAL) + [TokenType.BYTE] * 256
                      + [TokenType.NORMAL] * (len(tokens) - 256 - len(GEMMA_SPECIAL))
                      + [TokenType.USER_DEFINED] * len(GEMMA_TURNS))
    w.add_token_merges([" ".join(m) for m in merges])
    w.add_bos_token_id(2)
    w.add_eos_token_id(1)
    w.add_unk_token_id(3)
    w.add_add_bos_token(False)  # as in some published files
    finish(w)


def texts():
    rng = random.Random(SEED)
    words = CORPUS.split()
    spaces = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n", "\n ", "\u00a0", "\u3000", "\u2028"]
    odd = ["'s", "'S", "'LL", "'re", "\u2019t", "'\u017f", "i\u0301", "\u0301", "\u200d", "12", "1234567", "\u0664\u0665",
           "\u00bd", "...", "!?", "--", "==", "/\n", "/*\r\n", "camelCase", "XMLHttp", "ABCdef", "ÄÖü", "\u01c5x", "\u02b0a", "漢字か", "\U0001f999",
           UNMERGED, UNMERGED.strip(), "<tool_call>", "<tool", "_", "\u0e2a\u0e27\u0e31", "\u3007", "\u3005", "\u2f00", "\x00", "\x7f", "\ufeff"]
    assigned = [c for c in map(chr, range(1, 0x32000)) if unicodedata.category(c) not in ("Cn", "Cs", "Co")]
    result = ["", " ", "  ", "a", "Hello world", "  two  spaces  ", "\n\n\n x", "tail   ", "tail \n ", "'s 'S 'x"]
    for _ in range(120):
        pool = rng.choice([words, words, odd, spaces, assigned])
        parts = []
        for _ in range(rng.randrange(1, 12)):
            parts.append(rng.choice(rng.choice([pool, words, spaces, odd])))
        result.append("".join(parts))
    return result


# Runs before words, signs and other numbers.
DIGITS = ["1 12 123 1234 12345 123456 1234567", "1234567abc", "x1234567", "12345_ 12345\u0301 12345\u00bd 12345\u2167",
          "\u0664\u0665\u0666\u0667 1234\u3007", "1234.5678,901", "12345\u56db \u56db12345", "\u0e01\u0e40\u0e01 \u1112\u1161 \uff76\u3042a"]


def special_texts():
    return ["<|im_start|>user\nHello<|im_end|>\n", "<|im_start|>system\nx<|im_end|>", "<|endoftext|><|endoftext|>",
            "<|im_start|><|im_start", "a<tool_call>{}", "x        y     z", "      ", "<|im_end|> a",
            "नमस्ते दुनिया, कैसे हो?", "สวัสดี ชาวโลก ครับ", "مَرْحَبًا بِالعَالَم", "e\u0301 e\u0301a \u0301b", "two words/\n\nmore  words /x",
            *DIGITS]


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    tokens, merges = train_bpe()
    write_bpe(out / "vocab-small.gguf", tokens, merges)
    sp = train_spm()
    write_spm(out / "vocab-small-spm.gguf", sp)
    with open(out / "vocab-small.cases", "w", encoding="ascii") as f:
        for pre in PRE_TOKENIZERS:
            t = hugging_face(tokens, merges, pre)
            for text in texts() + special_texts():
                ids = t.encode(text, add_special_tokens=False).ids
                print("vocab-small.gguf", pre, text.encode().hex(), ",".join(map(str, ids)),
                      sep="\t", file=f)
        # SentencePiece adds a space in front of a whole text only, the runtime after each special
        # token too (as llama.cpp does), and it ends a text at NUL: such texts are left out.
        for text in texts():
            if "<tool_call>" not in text and "\x00" not in text and "\u2581" not in text:
                ids = sp.encode(text)
                print("vocab-small-spm.gguf", "-", text.encode().hex(), ",".join(map(str, ids)),
                      sep="\t", file=f)
        gemma = hugging_face_gemma(*train_gemma())
        write_gemma(out / "vocab-small-gemma.gguf", *train_gemma())
        for text in texts() + [t.replace("<|im_start|>", "<|turn>") for t in special_texts()]:
            if SPACE not in text:  # which the published one takes for a space
                print("vocab-small-gemma.gguf", "-", text.encode().hex(),
                      ",".join(map(str, gemma.encode(text, add_special_tokens=False).ids)), sep="\t", file=f)


main()
