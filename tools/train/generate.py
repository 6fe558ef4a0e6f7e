"""Writes the generated part of the corpus: questions with answers, and short stories.

Questions stand in the chat template that the model file carries (chatml) and
have one right answer each, so that the demo can be asked something that a
program can check (evaluate.py does).  Stories and descriptions come from the
grammar in stories.py.  The same seed writes the same text.

Output: WORK/corpus/chat.jsonl and WORK/corpus/stories.jsonl.
"""
import argparse
import json
import pathlib
import random

import stories

NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = ("January February March April May June July August September October "
          "November December").split()
MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
# (large unit, small unit, how many small ones a large one has)
UNITS = [("metre", "centimetre", 100), ("kilometre", "metre", 1000),
         ("centimetre", "millimetre", 10), ("kilogram", "gram", 1000),
         ("hour", "minute", 60), ("minute", "second", 60), ("day", "hour", 24),
         ("week", "day", 7), ("year", "month", 12), ("litre", "millilitre", 1000),
         ("tonne", "kilogram", 1000), ("foot", "inch", 12), ("decade", "year", 10),
         ("century", "year", 100), ("yard", "foot", 3)]
PLURALS = {"foot": "feet", "inch": "inches", "century": "centuries"}
CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki",
    "Denmark": "Copenhagen", "Poland": "Warsaw", "Austria": "Vienna", "Greece": "Athens",
    "Ireland": "Dublin", "Hungary": "Budapest", "Egypt": "Cairo", "Kenya": "Nairobi",
    "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi", "Canada": "Ottawa",
    "Cuba": "Havana", "Peru": "Lima", "Chile": "Santiago", "Russia": "Moscow",
    "Turkey": "Ankara", "Iceland": "Reykjavik", "Belgium": "Brussels", "Romania": "Bucharest"}
OPPOSITES = {
    "hot": "cold", "big": "small", "tall": "short", "fast": "slow", "old": "young",
    "happy": "sad", "light": "dark", "full": "empty", "open": "closed", "wet": "dry",
    "hard": "soft", "early": "late", "rich": "poor", "strong": "weak", "high": "low",
    "left": "right", "day": "night", "clean": "dirty", "loud": "quiet", "near": "far"}
KINDS = {
    "animal": "cat dog horse cow goat sheep fox bear mouse owl frog lion".split(),
    "fruit": "apple pear plum cherry lemon peach orange banana grape".split(),
    "tool": "hammer saw drill file wrench chisel axe spade".split(),
    "colour": "red blue green yellow black white brown purple".split(),
    "vehicle": "car bus train ship bicycle truck boat plane".split(),
    "drink": "water milk tea coffee juice lemonade".split()}
NAMES = ("Anna Tom Mia Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Maria "
         "Noah Olga Peter Rosa Sam Tina Victor Wendy Paul Lucy Martin").split()
THINGS = ("ball kite book hat cup lamp key bag coat box pen map ring drum doll "
          "flag boat chair clock bell").split()
COLOURS = KINDS["colour"]
CITIES = ("Oslo Rome Paris Berlin Madrid Vienna Lisbon Dublin Athens Cairo Tokyo "
          "London Prague Warsaw").split()
JOBS = "baker teacher doctor farmer painter nurse driver cook gardener writer tailor".split()
PLACES = ("in the kitchen", "on the table", "under the bed", "in the garden", "behind the door",
          "on the shelf", "in the car", "near the window", "in the drawer", "at school")


def plural(word):
    if word in PLURALS:
        return PLURALS[word]
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("x", "s", "ch")) else "s")


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def joined(words):
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def small(r, top):
    """A number up to top, small ones more often."""
    return r.randrange(0, (r.randrange(1, top + 1)) + 1)


def addition(r):
    a, b = small(r, 99), small(r, 99)
    ask = r.choice(["What is {a} plus {b}?", "What is {a} + {b}?", "Add {a} and {b}.",
                    "{a} + {b} = ?", "Calculate {a} + {b}.", "How much is {a} plus {b}?"])
    return ask.format(a=a, b=b), f"{a} + {b} = {a + b}."


def subtraction(r):
    b = small(r, 50)
    a = b + small(r, 50)
    ask = r.choice(["What is {a} minus {b}?", "What is {a} - {b}?", "Subtract {b} from {a}.",
                    "{a} - {b} = ?", "Calculate {a} - {b}.", "How much is {a} minus {b}?"])
    return ask.format(a=a, b=b), f"{a} - {b} = {a - b}."


def multiplication(r):
    a, b = r.randrange(0, 13), r.randrange(0, 13)
    ask = r.choice(["What is {a} times {b}?", "What is {a} * {b}?", "Multiply {a} by {b}.",
                    "{a} * {b} = ?", "Calculate {a} * {b}.", "How much is {a} times {b}?"])
    return ask.format(a=a, b=b), f"{a} * {b} = {a * b}."


def word_sum(r):
    a, b = r.randrange(1, 13), r.randrange(1, 13)
    name, thing = r.choice(NAMES), r.choice(THINGS + KINDS["fruit"])
    things = plural(thing)
    if r.random() < 0.5:
        return (f"{name} has {a} {plural(thing) if a != 1 else thing} and gets {b} more. "
                f"How many {things} does {name} have now?",
                f"{a} + {b} = {a + b}, so {name} has {a + b} {things}.")
    a, b = a + b, b
    left = a - b
    return (f"{name} has {a} {things} and gives {b} away. How many {things} are left?",
            f"{a} - {b} = {left}, so {left} {things if left != 1 else thing} "
            f"{'are' if left != 1 else 'is'} left.")


def comparison(r):
    a, b = r.sample(range(1, 100), 2)
    word = r.choice(["larger", "smaller"])
    got = max(a, b) if word == "larger" else min(a, b)
    return (r.choice([f"Which number is {word}, {a} or {b}?", f"Which is {word}: {a} or {b}?"]),
            f"{got} is {word} than {a + b - got}.")


def weekday(r):
    i, n = r.randrange(7), r.randrange(2, 6)
    way = r.randrange(4)
    if way == 0:
        return (r.choice([f"Which day comes after {DAYS[i]}?",
                          f"What day is it the day after {DAYS[i]}?",
                          f"Today is {DAYS[i]}. What day is tomorrow?"]),
                f"The day after {DAYS[i]} is {DAYS[(i + 1) % 7]}.")
    if way == 1:
        return (r.choice([f"Which day comes before {DAYS[i]}?",
                          f"Today is {DAYS[i]}. What day was yesterday?"]),
                f"The day before {DAYS[i]} is {DAYS[(i - 1) % 7]}.")
    number = NUMBER_WORDS[n]
    return (r.choice([f"Which day is {number} days after {DAYS[i]}?",
                      f"Today is {DAYS[i]}. What day is it in {number} days?"]),
            f"{number.capitalize()} days after {DAYS[i]} is {DAYS[(i + n) % 7]}.")


def month(r):
    i = r.randrange(12)
    way = r.randrange(3)
    if way == 0:
        return (r.choice([f"How many days does {MONTHS[i]} have?",
                          f"How many days are in {MONTHS[i]}?"]),
                f"{MONTHS[i]} has {MONTH_DAYS[i]} days"
                + (", and 29 in a leap year." if i == 1 else "."))
    if way == 1:
        return f"Which month comes after {MONTHS[i]}?", f"{MONTHS[(i + 1) % 12]} comes after {MONTHS[i]}."
    return f"Which month comes before {MONTHS[i]}?", f"{MONTHS[(i - 1) % 12]} comes before {MONTHS[i]}."


def next_date(r):
    i = r.randrange(12)
    day = r.randrange(1, MONTH_DAYS[i] + 1)
    if r.random() < 0.2:
        day = MONTH_DAYS[i]
    after, then = (day + 1, i) if day < MONTH_DAYS[i] else (1, (i + 1) % 12)
    if i == 1 and day == 28:
        day, after, then = 27, 28, 1
    ask = r.choice(["Which date comes after {d} {m}?", "What is the day after {d} {m}?",
                    "Today is {d} {m}. What is the date tomorrow?"])
    return (ask.format(d=day, m=MONTHS[i]),
            f"The day after {day} {MONTHS[i]} is {after} {MONTHS[then]}.")


def conversion(r):
    large, little, many = r.choice(UNITS)
    n = r.randrange(1, 11)
    larges = plural(large) if n != 1 else large
    if r.random() < 0.75:
        ask = r.choice([f"How many {plural(little)} are in {n} {larges}?",
                        f"Convert {n} {larges} to {plural(little)}.",
                        f"How many {plural(little)} are {n} {larges}?"])
        return ask, f"{n} {larges} {'are' if n != 1 else 'is'} {n * many} {plural(little)}."
    ask = r.choice([f"How many {plural(large)} are {n * many} {plural(little)}?",
                    f"Convert {n * many} {plural(little)} to {plural(large)}."])
    return ask, f"{n * many} {plural(little)} are {n} {larges}."


def stated_owner(r):
    count = r.choice([2, 2, 3])
    names, things = r.sample(NAMES, count), r.sample(THINGS, count)
    colours = r.sample(COLOURS, count)
    said = " ".join(f"{n} has {article(c)} {t}." for n, t, c in zip(names, things, colours))
    i = r.randrange(count)
    way = r.randrange(3)
    if way == 0:
        return f"{said} Who has the {things[i]}?", f"{names[i]} has the {things[i]}."
    if way == 1:
        return f"{said} What colour is the {things[i]}?", f"The {things[i]} is {colours[i]}."
    return f"{said} What does {names[i]} have?", f"{names[i]} has {article(colours[i])} {things[i]}."


def stated_person(r):
    names = r.sample(NAMES, 2)
    cities, jobs = r.sample(CITIES, 2), r.sample(JOBS, 2)
    ages = r.sample(range(18, 80), 2)
    said = " ".join(f"{names[k]} lives in {cities[k]} and works as {article(jobs[k])}. "
                    f"{names[k]} is {ages[k]} years old." for k in range(r.choice([1, 2])))
    i = 0 if names[1] not in said else r.randrange(2)
    ask, answer = r.choice([
        (f"Where does {names[i]} live?", f"{names[i]} lives in {cities[i]}."),
        (f"What is the job of {names[i]}?", f"{names[i]} works as {article(jobs[i])}."),
        (f"How old is {names[i]}?", f"{names[i]} is {ages[i]} years old.")])
    return f"{said} {ask}", answer


def stated_place(r):
    count = r.choice([2, 3])
    things, places = r.sample(THINGS, count), r.sample(PLACES, count)
    said = " ".join(f"The {t} is {p}." for t, p in zip(things, places))
    i = r.randrange(count)
    if r.random() < 0.5:
        return f"{said} Where is the {things[i]}?", f"The {things[i]} is {places[i]}."
    return f"{said} What is {places[i]}?", f"The {things[i]} is {places[i]}."


def counting(r):
    way = r.randrange(3)
    if way == 0:
        a = r.randrange(0, 20)
        b = a + r.randrange(3, 9)
        return (r.choice([f"Count from {a} to {b}.", f"List the numbers from {a} to {b}."]),
                ", ".join(str(x) for x in range(a, b + 1)) + ".")
    if way == 1:
        words = r.sample(THINGS, r.randrange(2, 8))
        return (f"How many words are in this list: {', '.join(words)}?",
                f"There are {NUMBER_WORDS[len(words)]} words in the list.")
    x, y = r.sample(KINDS["fruit"], 2)
    words = [x] * r.randrange(1, 5) + [y] * r.randrange(1, 4)
    r.shuffle(words)
    n = words.count(x)
    return (f"How many times does the word {x} occur: {', '.join(words)}?",
            f"The word {x} occurs {NUMBER_WORDS[n]} time{'s' if n != 1 else ''}.")


def sorting(r):
    if r.random() < 0.5:
        words = r.sample(THINGS + KINDS["fruit"] + KINDS["animal"], r.randrange(3, 6))
        return (r.choice(["Sort these words: {}.", "Put these words in alphabetical order: {}."])
                .format(", ".join(words)), ", ".join(sorted(words)) + ".")
    numbers = r.sample(range(0, r.choice([10, 30, 100])), r.randrange(3, 6))
    return (r.choice(["Sort these numbers: {}.", "Put these numbers in order: {}."])
            .format(", ".join(map(str, numbers))), ", ".join(map(str, sorted(numbers))) + ".")


def knowledge(r):
    way = r.randrange(5)
    if way <= 1:
        land = r.choice(list(CAPITALS))
        if way == 0:
            return (r.choice([f"What is the capital of {land}?", f"Name the capital of {land}."]),
                    f"The capital of {land} is {CAPITALS[land]}.")
        return f"{CAPITALS[land]} is the capital of which country?", f"{CAPITALS[land]} is the capital of {land}."
    if way == 2:
        a, b = r.choice(list(OPPOSITES.items()))
        a, b = (a, b) if r.random() < 0.5 else (b, a)
        return (r.choice([f"What is the opposite of {a}?", f"Give the opposite of {a}."]),
                f"The opposite of {a} is {b}.")
    kind = r.choice(list(KINDS))
    thing = r.choice(KINDS[kind])
    if way == 3:
        other = r.choice([k for k in KINDS if k != kind])
        pair = [kind, other]
        r.shuffle(pair)
        shown = thing if kind in ("colour", "drink") else article(thing)
        return (f"Is {shown} {article(pair[0])} or {article(pair[1])}?",
                f"{shown[0].upper() + shown[1:]} is {article(kind)}.")
    others = r.sample(KINDS[r.choice([k for k in KINDS if k != kind])], 3)
    words = others + [thing]
    r.shuffle(words)
    return f"Which word is {article(kind)}: {', '.join(words)}?", f"The word {thing} is {article(kind)}."


def small_talk(r):
    ask, answers = r.choice([
        (["Who are you?", "What are you?", "What is your name?"],
         ["I am the moed demo, a small language model with experts."]),
        (["Hello!", "Hello.", "Hi!", "Good morning!", "Hi there."],
         ["Hello! How can I help you?"]),
        (["Thank you!", "Thanks.", "Thank you very much."], ["You are welcome."]),
        (["Goodbye.", "Bye!", "See you soon."], ["Goodbye! Have a good day."]),
        (["How are you?", "How are you today?"], ["I am well, thank you. What can I do for you?"]),
        (["What can you do?", "What can I ask you?"],
         ["I can add and subtract small numbers, name days and months, convert units, "
          "sort words and tell short stories."])])
    return r.choice(ask), r.choice(answers)


def story_request(r):
    topic = r.choice(list(stories.TOPICS))
    if r.random() < 0.6:
        hero, text = stories.story(r, topic)
        ask = r.choice(["Tell me a story about {}.", "Tell me a short story about {}.",
                        "Write a story about {}.", "Can you tell me a story about {}?"])
        return ask.format(hero), text
    text = stories.description(r, topic)
    ask = r.choice(["Tell me about the {}.", "Write a few sentences about the {}.",
                    "Describe the {}."])
    return ask.format(stories.TOPICS[topic]["title"]), text


# How often each kind of question is asked.
QUESTIONS = [(addition, 12), (subtraction, 9), (multiplication, 8), (word_sum, 5), (comparison, 4),
             (weekday, 7), (month, 5), (next_date, 5), (conversion, 9), (stated_owner, 8),
             (stated_person, 6), (stated_place, 5), (counting, 6), (sorting, 6), (knowledge, 9),
             (small_talk, 2), (story_request, 7)]


def question(r):
    ask, = r.choices([f for f, _ in QUESTIONS], [w for _, w in QUESTIONS])
    return (ask.__name__, *ask(r))


def turn(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def conversation(r):
    """One to three questions with their answers in the chat template."""
    text = turn("system", "You are a helpful assistant.") if r.random() < 0.1 else ""
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        _, ask, answer = question(r)
        text += turn("user", ask) + turn("assistant", answer)
    return text


def story_document(r):
    topic = r.choice(list(stories.TOPICS))
    if r.random() < 0.6:
        return stories.story(r, topic)[1] + "\n"
    return stories.description(r, topic) + "\n"


def write(path, seed, characters, make):
    r = random.Random(f"{seed} {path.stem}")
    size, seen = 0, set()
    with open(path, "w") as f:
        while size < characters:
            text = make(r)
            if text in seen:
                continue
            seen.add(text)
            size += len(text)
            f.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    print(f"{path.stem:8} {len(seen):6} documents {size:9} characters")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=pathlib.Path, required=True, help="work folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chat", type=int, default=14_000_000, help="characters of chat")
    parser.add_argument("--stories", type=int, default=4_000_000, help="characters of stories")
    args = parser.parse_args()
    out = args.work / "corpus"
    out.mkdir(parents=True, exist_ok=True)
    write(out / "chat.jsonl", args.seed, args.chat, conversation)
    write(out / "stories.jsonl", args.seed, args.stories, story_document)


if __name__ == "__main__":
    main()
