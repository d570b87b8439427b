#!/usr/bin/env python3
"""Export the problems of the main job from ReasoningGYM into this directory.

    python -m venv .venv && .venv/bin/pip install reasoning-gym==0.1.25
    .venv/bin/python data/export.py            # writes data/*.json and data/*.jsonl
    .venv/bin/python data/export.py --check    # writes nothing, compares with what is there

Everything is drawn from fixed seeds: the same version of the package gives the same bytes.
See README.md here for the formats, the encode rule and the corruption rule.
"""

import argparse
import collections
import importlib.metadata
import json
import pathlib
import random
import re
import sys

VERSION = "0.1.25"
HERE = pathlib.Path(__file__).resolve().parent
SPLITS = ("warm_up", "train", "held_out")
TRAIN, HELD_OUT = 2000, 160  # a family
LIMIT = 5_000_000  # bytes, all files together
CHECKER_SEED = 20_250_001
WARM_UP_WRONG = 3  # wrong answers to each warm-up problem

# family -> (warm-up problems, seed, problems drawn, options of the generator)
FAMILIES = {
    "spell_backward": (1200, 101, 20_000, {"min_word_len": 3, "max_word_len": 4}),
    "rotate_matrix": (600, 102, 6_000, {"min_n": 2, "max_n": 2}),  # fewer: it is learned sooner than the others
    "number_filtering": (
        1200,
        103,
        4_000,
        {"min_numbers": 2, "max_numbers": 2, "min_decimals": 0, "max_decimals": 0},
    ),
    "number_sorting": (
        1200,
        104,
        6_000,
        {"min_numbers": 2, "max_numbers": 2, "min_decimals": 0, "max_decimals": 0},
    ),
}

# The fixed parts of the question templates, each one token.
PHRASES = (
    [
        "Spell this word backward (example: sun -> nus): ",
        "Given a square matrix, your job is to rotate it clockwise.\n\n"
        "Your output should be a matrix in the same format as the input.\n\n"
        "Rotate the matrix below by ",
    ]
    + [f"{quarter * 90} degrees clockwise:\n" for quarter in range(11)]
    + [f"{verb} all numbers {side} than " for verb in ("Keep", "Remove") for side in ("larger", "smaller")]
    + [
        " in this list: ['",
        "']\nReturn the new list in the same format.",
        "Sort these numbers in ascending order: ",
        "Sort these numbers in descending order: ",
        "\nPlease follow the instruction below:\n"
        "## 1. Let all your answers be a list of numbers. Instead of reporting your answer as "
        "-69, -13, 1, 7, 11, 43, 59, 61, use ['-69', '-13', '1', '7', '11', '43', '59', '61'] instead\n"
        "## 2. Convert all numbers in the square brackets as strings. "
        "For example, ['-69', '-13', '1', '7', '11', '43', '59', '61']\n",
        "['",
        "', '",
        "']",
        "[]",
        ", ",
        ".0",
    ]
)
SPECIAL = ["<pad>", "<end>", "<answer>", "<check>", "<yes>", "<no>"]


# ---------------------------------------------------------------- tokens


class Vocabulary:
    """Ids: the special tokens, then the phrases, then the 256 bytes, in this order."""

    def __init__(self):
        self.phrases = [p.encode() for p in PHRASES]
        self.first_phrase = len(SPECIAL)
        self.first_byte = self.first_phrase + len(self.phrases)
        self.size = self.first_byte + 256
        self.longest_first = sorted(range(len(self.phrases)), key=lambda i: -len(self.phrases[i]))

    def encode(self, text):
        data, at, ids = text.encode(), 0, []
        while at < len(data):
            for i in self.longest_first:
                if data.startswith(self.phrases[i], at):
                    ids.append(self.first_phrase + i)
                    at += len(self.phrases[i])
                    break
            else:
                ids.append(self.first_byte + data[at])
                at += 1
        return ids

    def decode(self, ids):
        out = b""
        for i in ids:
            if i >= self.first_byte:
                out += bytes([i - self.first_byte])
            elif i >= self.first_phrase:
                out += self.phrases[i - self.first_phrase]
        return out.decode(errors="replace")

    def to_json(self):
        return {
            "version": 1,
            "special": SPECIAL,
            "phrases": PHRASES,
            "bytes": 256,
            "size": self.size,
            "rule": "ids: special, then phrases, then the 256 bytes. encode: over the UTF-8 bytes from the left, "
            "the longest phrase that the rest begins with, else one byte token. special tokens never come from text. "
            "decode: concatenate phrases and bytes, skip special.",
        }


# ---------------------------------------------------------------- problems


def content(family, question):
    """What a problem is about, apart from wording: no two problems share it, so neither do two splits."""
    if family == "spell_backward":
        return question.rsplit(": ", 1)[1].lower()
    if family == "rotate_matrix":
        return question.split("clockwise:\n", 1)[1]
    if family == "number_sorting":
        return tuple(sorted(question.split("order: ", 1)[1].split("\n", 1)[0].split(", ")))
    return question


def problems(family, score):
    import reasoning_gym

    warm_up, seed, drawn, options = FAMILIES[family]
    dataset = reasoning_gym.create_dataset(family, seed=seed, size=drawn, **options)
    questions, seen, kept = set(), set(), []
    for entry in dataset:
        question, answer = entry["question"], entry["answer"]
        questions.add(question)
        assert dataset.score_answer(answer, entry) == 1.0, (family, question)
        key = content(family, question)
        if family == "spell_backward" and not answer.islower():
            continue  # the package compares without case, the store's verifier exactly
        if key not in seen:
            seen.add(key)
            kept.append(entry)
    wanted = {"held_out": HELD_OUT, "train": TRAIN, "warm_up": warm_up}
    assert len(kept) >= sum(wanted.values()), (family, len(kept), wanted)
    stem, rows, at = family.replace("_", "-"), [], 0
    for split, count in wanted.items():
        for entry in kept[at : at + count]:
            name = f"{stem}-{len(rows):04d}"
            score[name] = lambda answer, entry=entry: dataset.score_answer(answer, entry)
            rows.append(
                {"family": family, "id": name, "question": entry["question"], "answer": entry["answer"], "split": split}
            )
        at += count
    return rows, {"drawn": drawn, "unique_questions": len(questions), "unique_contents": len(kept)}


# ---------------------------------------------------------------- wrong answers


def letter_or_digit(c):
    return c.isascii() and c.isalnum()


def rivals(family, question, answer):
    """Answers to a neighbouring question: the mistake of doing another operation on the right content."""
    if family == "spell_backward":
        return [question.rsplit(": ", 1)[1]]
    if family == "rotate_matrix":
        a, b, c, d = re.findall(r"[0-9]", answer)
        return [f"{w} {x}\n{y} {z}" for w, x, y, z in ((c, a, d, b), (d, c, b, a), (b, d, a, c))]
    numbers = re.findall(r"'([^']*)'", answer)
    if family == "number_sorting":
        return [f"['{numbers[1]}', '{numbers[0]}']"]
    x, y = re.findall(r"'([^']*)'", question)
    return ["[]", f"['{x}']", f"['{y}']", f"['{x}', '{y}']"]


def corrupt(family, question, answer, rng):
    """One wrong answer. Draw a kind (tenths: 4 replace, 2 swap, 1 drop, 1 double, 2 rival) until it differs.

    The 0 of a ".0" is left alone, and no 0 is dropped or doubled: 14.0, 14., 14.00 and 014.0 are one number.
    """
    places = [i for i, c in enumerate(answer) if letter_or_digit(c) and answer[max(i - 1, 0) : i + 1] != ".0"]
    while True:
        kind = rng.randrange(10)
        if kind >= 8 or not places:
            options = rivals(family, question, answer)
            wrong = options[rng.randrange(len(options))]
        else:
            i = places[rng.randrange(len(places))]
            if kind < 4:
                if rng.randrange(2) == 0:  # a character that stands in the answer
                    with_ = answer[places[rng.randrange(len(places))]]
                elif answer[i].isdigit():
                    with_ = "0123456789"[rng.randrange(10)]
                else:
                    with_ = "abcdefghijklmnopqrstuvwxyz"[rng.randrange(26)]
                wrong = answer[:i] + with_ + answer[i + 1 :]
            elif kind < 6:
                j = places[rng.randrange(len(places))]
                i, j = min(i, j), max(i, j)
                wrong = answer if i == j else answer[:i] + answer[j] + answer[i + 1 : j] + answer[i] + answer[j + 1 :]
            elif answer[i] == "0":
                continue
            elif kind == 6:
                wrong = answer[:i] + answer[i + 1 :]
            else:
                wrong = answer[:i] + answer[i] + answer[i:]
        if wrong != answer:
            return wrong


def checker_pairs(rows):
    """For every held-out problem its right answer and one wrong one: balanced within each problem."""
    rng = random.Random(CHECKER_SEED)
    for row in rows:
        wrong = corrupt(row["family"], row["question"], row["answer"], rng)
        for kind, answer in (("right", row["answer"]), ("wrong", wrong)):
            yield {
                "family": row["family"],
                "id": f"{row['id']}-{kind}",
                "problem": row["id"],
                "question": row["question"],
                "answer": answer,
                "right": kind == "right",
            }


def warm_up_wrongs(rows):
    """Wrong answers to each warm-up problem, for the checker's warm-up. A problem may draw the same one twice."""
    rng = random.Random(CHECKER_SEED + 1)
    for row in rows:
        wrong = [corrupt(row["family"], row["question"], row["answer"], rng) for _ in range(WARM_UP_WRONG)]
        yield {"id": row["id"], "wrong": wrong}


# ---------------------------------------------------------------- files


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def build():
    found = importlib.metadata.version("reasoning-gym")
    assert found == VERSION, f"reasoning-gym {VERSION} is needed, {found} is installed"
    vocabulary, splits = Vocabulary(), {name: [] for name in SPLITS}
    report, used, score = {}, collections.Counter(), {}
    for family in FAMILIES:
        rows, counts = problems(family, score)
        for row in rows:
            splits[row["split"]].append(row)
        answers = collections.Counter(row["answer"] for row in rows if row["split"] == "held_out")
        majority, times = answers.most_common(1)[0]
        counts |= {"majority_answer": majority, "majority_share": round(times / HELD_OUT, 4)}
        report[family] = counts
    pairs = list(checker_pairs(splits["held_out"]))

    # What must hold of the data, checked every time it is written.
    owner = {}
    for name, rows in splits.items():
        for row in rows:
            assert owner.setdefault(row["question"], name) == name, ("question in two splits", row)
            for text in (row["question"], row["answer"]):
                ids = vocabulary.encode(text)
                used.update(ids)
                assert vocabulary.decode(ids) == text, ("does not round-trip", text)
    assert len(owner) == sum(map(len, splits.values())), "a question stands twice"
    assert len({row["id"] for rows in splits.values() for row in rows}) == len(owner), "an id stands twice"
    answer_of = {row["id"]: row["answer"] for row in splits["held_out"]}
    for pair in pairs:
        assert (pair["answer"] == answer_of[pair["problem"]]) == pair["right"], pair
        if pair["right"] or pair["family"] != "number_sorting":  # there the package lets a number be off by one
            assert (score[pair["problem"]](pair["answer"]) == 1.0) == pair["right"], ("judged otherwise", pair)
    unused = [PHRASES[i] for i in range(len(PHRASES)) if not used[len(SPECIAL) + i]]
    assert not unused, ("phrases that never occur", unused)

    for family, counts in report.items():
        rows = [row for rows in splits.values() for row in rows if row["family"] == family]
        counts["longest_question"] = max(len(vocabulary.encode(row["question"])) for row in rows)
        counts["longest_answer"] = max(len(vocabulary.encode(row["answer"])) for row in rows)
    files = {f"{name}.jsonl": lines(rows) for name, rows in splits.items()}
    files["checker_held_out.jsonl"] = lines(pairs)
    files["checker_warm_up.jsonl"] = lines(warm_up_wrongs(splits["warm_up"]))
    files["vocabulary.json"] = (json.dumps(vocabulary.to_json(), ensure_ascii=False, indent=1) + "\n").encode()
    total = sum(map(len, files.values()))
    assert total < LIMIT, f"{total} bytes"
    return files, report, total


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the files here differ")
    check = parser.parse_args().check
    files, report, total = build()
    for family, counts in report.items():
        print(family, json.dumps(counts, ensure_ascii=False))
    print(f"{total} bytes in {len(files)} files")
    differing = [name for name, data in files.items() if not (HERE / name).exists() or (HERE / name).read_bytes() != data]
    if check:
        sys.exit(f"differs: {', '.join(differing)}" if differing else 0)
    for name in differing:
        (HERE / name).write_bytes(files[name])


if __name__ == "__main__":
    main()
