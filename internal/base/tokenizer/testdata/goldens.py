"""Makes the golden files of this package with the library tokenizers.

    python3 goldens.py FOLDER_OF_GO_FILES OUT

gpt2.json, llama3.json and qwen2.json are byte-level BPE with the rules of splitting of those families, trained on the
Go files and the texts below. golden.json has what the library encodes and decodes with each.
"""
import json
import os
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {"llama3": CONTRACTIONS + r"\p{N}{1,3}" + REST, "qwen2": CONTRACTIONS + r"\p{N}" + REST}
SPECIAL = ["<|begin|>", "<|end|>", "<|user|>", "<|agent|>"]

ATOMS = [
    " ", "  ", "    ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", "\v", "\f", "\x85", "\xa0", "\u1680", "\u2003", "\u2028",
    "\u3000", "\u200b", "\ufeff", "\0", "\x1b", "\x7f", "a", "A", "word", "Words", "func", "return", "É", "é", "e\u0301",
    "\u0301", "ß", "ſ", "ﬁ", "\u212b", "İ", "'", "''", "'s", "'S", "'ſ", "'t", "'T", "'re", "'RE", "'rE", "'ve", "'m",
    "'M", "'ll", "'Ll", "'d", "'x", "'es", "’s", "1", "12", "123", "1234", "1234567", "3.14", "٣٤", "Ⅷ", "²", "½", "一",
    "中文", "文字处理", "日本語", "テスト", "한글", "\u1100\u1161\u11a8", "हिन्दी", "ไทย", "עברית", "العربية", "Ελληνικά",
    "Привет", "🙂", "👨\u200d👩\u200d👧", "🇩🇪", "👍🏽", "☃", "★", "€", "±", "→", ".", "...", ",", "!?", "_", "__", "-", "--",
    "$", "#", "@", "/", "//", "\\", "{", "}", "()", "[]", "<", ">", "=", ":=", "==", "&&", "||", "+", "*", "%", "^", "~",
    "`", '"', "\ue000", "\ufffd", "\uffff", "\U00010348", "\U0001d54f", "\U0010ffff", "<|", "|>", "<|end|>", "<|user|>",
    "<|begin|>", "<|end", "<tool>", "</tool>", "<tool", "<|agent|><|end|>",
]
TEXTS = [
    "", " ", "Hello, world!", " Hello", "  Hello  world  ", "func main() {\n\tfmt.Println(\"hi\")\n}\n",
    "if err != nil {\n\t\treturn nil, err\n\t}\n", "It's John's; they're we've I'm you'll he'd", "IT'S THEY'RE WE'VE I'M YOU'LL",
    "don't can't won't 'tis 'twas", "x'sy x'ty 'reve 'vell", "1 12 123 1234 12345 123456 1234567 12345678901234567890",
    "a1b22c333d4444e", "12,345.678", "0x1F 1e-9 1_000_000", "\n\n\n", "\r\n\r\n", " \n \n", "\n \n a", "a \n b", "a\n\n  b",
    "a \r\n\t b", "  \n", "\n  ", "\t\t\n\t\ta", "a   ", "a\t", "\u3000\u3000a", "a\xa0b \xa0 c", "\x85a\x85 b", "\u2028\u2029x",
    "e\u0301 é E\u0301", "\u212b \u00c5 A\u030a", "\uac00 \u1100\u1161", "中文 和 English 混合", "日本語のテキスト。テスト", "안녕하세요 세계",
    "नमस्ते दुनिया", "สวัสดีชาวโลก", "שלום עולם", "مرحبا بالعالم", "Здравствуй, мир", "🙂🙂 🙂", "a🙂b", "👨\u200d👩\u200d👧\u200d👦 family", "🇩🇪🇫🇷",
    "\0\0a\0", "\x00\x01\x02\x7f", "\ufeffBOM", "a\u200bb", "<|begin|>text<|end|>", "a<|user|>b<|agent|>c", "<|end|><|end|>",
    "<|end|", "<<|end|>>", "<tool>x</tool>", "<tool><|end|><tool>", "_a_b__c", "a.b.c...d", "--flag=value", "$HOME/.x", "C:\\a\\b",
    "'ſ 'ſt", "'", "''s", "' s", "\"'s\"", "½ ² Ⅷ ٣", "1½2²", "a" * 60, " " * 40, "\n" * 20, "ab" * 30, "12" * 20,
    "\t" * 9 + "x", "// comment\n\n\n\n// more", "\u0301\u0302\u0303", "a\u0301\u0302b", "ﬁne ﬂat", "ＡＢＣ１２３", "ⅷⅧ", "𝕏𝕐 𝟙𝟚",
    "\U0010ffff\ufffd\uffff", " \u1680\u2003 x", "x\u2009\u200a", "a\x0bb\x0cc", "naïve café ÀÉÎÕÜ ß", "İstanbul ıI",
]


def tokenizer(rule, corpus):
    t = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule == "gpt2")
    if rule == "gpt2":
        t.pre_tokenizer = level
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLITS[rule]), "isolated"), level])
    if rule == "qwen2":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=900, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_tokens([AddedToken("<tool>", normalized=False)])
    data = json.loads(t.to_str())
    if rule == "llama3":
        # Tokens that no merge makes any more: only ignore_merges finds them.
        used = {part for pair in data["model"]["merges"] for part in pair}
        last = [pair for pair in data["model"]["merges"] if pair[0] + pair[1] not in used]
        data["model"]["merges"] = [p for p in data["model"]["merges"] if p not in last[::4]]
        data["model"]["ignore_merges"] = True
        t = Tokenizer.from_str(json.dumps(data))
        t.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{SPECIAL[0]} $A", special_tokens=[(SPECIAL[0], 0)]),
        ])
    return t


def main(folder, out):
    rng = random.Random(46)
    texts = TEXTS + ["".join(rng.choices(ATOMS, k=rng.randint(2, 14))) for _ in range(150)]
    corpus = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".go"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                corpus.append(f.read()[:200000])
    corpus += texts * 5
    os.makedirs(out, exist_ok=True)
    golden = {"library": "tokenizers " + tokenizers.__version__, "texts": texts, "rules": {}}
    for rule in ("gpt2", "llama3", "qwen2"):
        t = tokenizer(rule, corpus)
        with open(os.path.join(out, rule + ".json"), "w", encoding="utf-8") as f:
            data = json.loads(t.to_str())
            if rule == "gpt2":  # the older form of merges
                data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
            f.write(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
        special = [t.encode(x, add_special_tokens=False).ids for x in texts]
        t.encode_special_tokens = True
        plain = [t.encode(x, add_special_tokens=False).ids for x in texts]
        rows = [rng.choices(range(t.get_vocab_size()), k=rng.randint(1, 12)) for _ in range(60)]
        rows += [rng.choices(range(4, 260), k=rng.randint(1, 12)) for _ in range(60)]
        golden["rules"][rule] = {
            "plain": plain, "special": special, "decoded": [t.decode(ids, skip_special_tokens=True) for ids in special],
            "rows": rows, "rows_decoded": [t.decode(ids, skip_special_tokens=True) for ids in rows],
        }
        print(rule, t.get_vocab_size(), sum(map(len, plain)), sum(map(len, special)))
    with open(os.path.join(out, "golden.json"), "w", encoding="utf-8") as f:
        json.dump(golden, f, ensure_ascii=True, separators=(",", ":"))


if __name__ == "__main__":
    main(*sys.argv[1:])
