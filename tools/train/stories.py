"""The grammar of the generated stories and descriptions.

A story is a plan of six steps (who and where, a wish, a trouble, help, the end,
what was learnt); every step has several wordings, and the nouns come from the
story's topic, so that the words of one story belong together.
"""

NAMES = ("Anna Tom Mia Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Maria Noah "
         "Olga Peter Rosa Sam Tina Victor Wendy Paul Lucy Martin").split()

# hero: who the story may be about; place, thing, trouble, helper: the nouns and
# clauses of the plan; lines: sentences of a description.
TOPICS = {
    "animals": {
        "title": "animals",
        "hero": ["small cat", "brown dog", "young fox", "grey mouse", "white rabbit", "little bear",
                 "old owl", "green frog", "black horse", "clever crow", "shy hedgehog", "little duck"],
        "place": ["in the forest", "near the river", "on a quiet farm", "under an old oak tree",
                  "at the edge of the lake", "behind the barn"],
        "thing": ["some food for the winter", "a warm place to sleep", "the way back home",
                  "a friend to play with", "the sweet berries on the hill", "a dry nest"],
        "trouble": ["the river was too wide to cross", "a big dog stood in the way",
                    "the snow covered the path", "the night was very dark",
                    "the branch was too high", "the rain did not stop"],
        "helper": ["a kind squirrel", "the wise old owl", "a friendly goat", "two small birds",
                   "a slow turtle"],
        "help": ["showed a safe path through the trees", "carried a lantern all the way",
                 "shared a place under the leaves", "brought a strong branch",
                 "waited until the danger was gone"],
        "lines": ["The fox sleeps in a hole under the roots of a tree.",
                  "Birds build their nests in spring and feed their young with insects.",
                  "A horse eats grass and hay, and it needs fresh water every day.",
                  "The owl hunts at night because its eyes are very good in the dark.",
                  "Sheep give us wool, and cows give us milk.",
                  "A dog is a good friend when it is treated with care.",
                  "Frogs live near water and eat flies.",
                  "In winter some animals sleep until the snow is gone.",
                  "The squirrel hides nuts in the ground and often forgets where they are.",
                  "Bees fly from flower to flower and make honey.",
                  "A cat can wait for a mouse for a very long time.",
                  "Ducks swim on the lake and dive for food."]},
    "kitchen": {
        "title": "kitchen",
        "hero": ["young cook", "old baker", "kind grandmother", "hungry boy", "new waiter",
                 "little girl with a big spoon", "famous chef"],
        "place": ["in a small kitchen", "in the bakery at the corner", "in a busy restaurant",
                  "at the stove of an old house", "in the school kitchen"],
        "thing": ["the best soup of the town", "a cake for the birthday of a friend",
                  "fresh bread for the morning", "a pie with red apples", "a simple dinner for ten guests"],
        "trouble": ["there was no flour in the cupboard", "the oven did not get hot",
                    "the milk was sour", "the soup had too much salt", "the sugar was empty",
                    "the dough did not rise"],
        "helper": ["a neighbour", "the farmer from the market", "an old friend", "the little sister",
                   "the woman from the shop"],
        "help": ["brought a bag of flour and six eggs", "lit the fire again",
                 "showed how to use a little lemon", "washed all the pots and pans",
                 "knew a better recipe"],
        "lines": ["A good soup needs fresh vegetables, a little salt and enough time.",
                  "The bread is baked in a hot oven until its crust is brown.",
                  "First the water boils, and then the rice goes into the pot.",
                  "The knife must be sharp, and the board must be clean.",
                  "Butter melts in the warm pan and smells very good.",
                  "The cook cuts the onions and puts them into the oil.",
                  "Flour, eggs, milk and sugar make a simple cake.",
                  "The plates stand in the cupboard, and the spoons lie in the drawer.",
                  "After dinner somebody washes the dishes and somebody dries them.",
                  "Fresh herbs from the garden give the salad its taste.",
                  "The tea is ready when the water is hot and the leaves have opened.",
                  "Apples can be eaten fresh, cooked or baked in a pie."]},
    "weather": {
        "title": "weather",
        "hero": ["small cloud", "young sailor", "old farmer", "girl with a red umbrella",
                 "man who watched the sky", "boy with a kite"],
        "place": ["on a cold morning in March", "above the grey sea", "in a valley between high hills",
                  "on a hot day in July", "on the windy side of the mountain"],
        "thing": ["a little sunshine", "rain for the dry fields", "a calm wind for the journey",
                  "snow for the holidays", "a clear sky for one night"],
        "trouble": ["the storm came from the west", "the fog was as thick as wool",
                    "the sun was too hot", "the wind blew from the wrong side",
                    "the ice made the road slippery"],
        "helper": ["the west wind", "a fisherman", "the warm sun", "the old woman on the hill",
                   "the keeper of the lighthouse"],
        "help": ["pushed the clouds away", "opened the door of a dry house",
                 "pointed to the light at the harbour", "told the right hour to leave",
                 "lent a thick coat"],
        "lines": ["In winter the days are short and the nights are long.",
                  "When warm air meets cold air, clouds grow and rain may fall.",
                  "The wind from the sea brings rain to the coast.",
                  "In summer the sun rises early and sets late.",
                  "Snow falls when the air is colder than the point where water freezes.",
                  "After the storm the sky was clear and the air was fresh.",
                  "Fog often lies over the river in the morning.",
                  "A rainbow appears when the sun shines while it rains.",
                  "In autumn the leaves turn yellow and fall from the trees.",
                  "Thunder follows the lightning after a few seconds.",
                  "The ice on the lake was thin, and nobody walked on it.",
                  "In spring the snow melts and the rivers are full."]},
    "travel": {
        "title": "journey",
        "hero": ["tired traveller", "young woman with a heavy bag", "family of four",
                 "captain of a small ship", "bus driver", "student with a map"],
        "place": ["at the station of a large city", "on the road to the south", "in a harbour full of ships",
                  "on a train through the mountains", "in a foreign town"],
        "thing": ["the last train to the coast", "a bed for the night", "the house of an old friend",
                  "the bridge over the river", "a ticket to the island"],
        "trouble": ["the train was two hours late", "the map was wrong", "the bag was lost",
                    "the road was closed", "the ship had already left", "nobody spoke the same language"],
        "helper": ["a friendly driver", "the man at the ticket window", "a girl with a bicycle",
                   "an old sailor", "the owner of the inn"],
        "help": ["drew a new map on a piece of paper", "found the bag under a bench",
                 "offered a seat in the car", "explained the way slowly and clearly",
                 "called a friend who had a boat"],
        "lines": ["The train leaves at eight o'clock and arrives at noon.",
                  "A good traveller carries little and asks often.",
                  "The road follows the river until it reaches the sea.",
                  "From the window we could see fields, villages and a church on a hill.",
                  "The ticket was cheap, but the journey was long.",
                  "In the harbour the ships wait for the tide.",
                  "The inn was small and clean, and the supper was hot.",
                  "We crossed the bridge on foot because the bus did not come.",
                  "A map is useful only when you know where you are.",
                  "The plane flew above the clouds for three hours.",
                  "At the border a man looked at our papers and let us pass.",
                  "On the last day we bought bread and cheese and walked home."]},
    "tools": {
        "title": "workshop",
        "hero": ["old carpenter", "young smith", "careful mechanic", "girl who liked machines",
                 "clock maker", "boy with a hammer"],
        "place": ["in a workshop full of tools", "in the shed behind the house", "at a long wooden bench",
                  "in the garage", "in the yard of the mill"],
        "thing": ["a strong chair", "a new wheel for the cart", "a small wooden boat", "a clock that never stops",
                  "a gate for the garden"],
        "trouble": ["the saw was not sharp", "the wood broke in two pieces", "the last nail was bent",
                    "the handle of the hammer was loose", "one screw was missing"],
        "helper": ["the master of the shop", "a patient neighbour", "the blacksmith", "a clever apprentice",
                   "the grandfather"],
        "help": ["sharpened the saw with a file", "glued the pieces together",
                 "made a new handle from oak", "looked for the screw on the floor",
                 "measured everything twice"],
        "lines": ["A hammer drives nails into the wood.",
                  "The saw must be sharp, or the cut will not be straight.",
                  "Measure twice and cut once, the carpenter says.",
                  "A screw holds better than a nail, but it takes more time.",
                  "The file makes the edge of the metal smooth.",
                  "The drill makes round holes in wood, stone or metal.",
                  "Oil keeps the machine from rust.",
                  "After work the tools are cleaned and hung on the wall.",
                  "The wrench turns the nut until the bolt is tight.",
                  "Glue needs a day to become hard.",
                  "The plane takes thin pieces from the board.",
                  "A good bench is heavy and does not move."]},
    "school": {
        "title": "school",
        "hero": ["new teacher", "quiet pupil", "girl in the first row", "boy who forgot his book",
                 "class of twenty children", "young student"],
        "place": ["in a small school", "in the library", "in the classroom on the first floor",
                  "on the way to school", "at the desk near the window"],
        "thing": ["the answer to a hard question", "a book about the stars", "a good mark in mathematics",
                  "a poem for the last day of school", "the lost pencil"],
        "trouble": ["the lesson was very difficult", "the page was missing", "the bell rang too early",
                    "the chalk was broken", "everybody was talking at the same time"],
        "helper": ["a friend in the last row", "the librarian", "the older brother", "the kind teacher",
                   "a girl from the other class"],
        "help": ["explained the problem step by step", "lent a pen and some paper",
                 "read the page aloud", "drew a picture on the board",
                 "stayed an hour longer to practise"],
        "lines": ["The lesson begins at eight when the bell rings.",
                  "The teacher writes the date on the board.",
                  "Children learn to read, to write and to count.",
                  "In the library there are books about every country.",
                  "The pupils sit at their desks and listen.",
                  "A good question is often better than a quick answer.",
                  "In the break the children run across the yard.",
                  "She solved the problem with a pencil and a sheet of paper.",
                  "The homework was short, but it was not easy.",
                  "On Friday the class sings together.",
                  "He reads one chapter every evening before he sleeps.",
                  "At the end of the year every pupil gets a report."]},
    "garden": {
        "title": "garden",
        "hero": ["patient gardener", "little seed", "boy with a watering can", "old woman with a straw hat",
                 "young apple tree", "busy bee"],
        "place": ["in a garden behind the house", "between two rose bushes", "next to the stone wall",
                  "on a field near the village", "beside the pond"],
        "thing": ["the biggest pumpkin of the year", "a red rose", "rain and good soil",
                  "a basket full of beans", "flowers for the whole summer"],
        "trouble": ["the snails ate the leaves", "the ground was hard and dry", "weeds grew everywhere",
                    "the frost came too early", "the fence was broken"],
        "helper": ["a hungry hedgehog", "the neighbour's daughter", "a gentle rain", "the man with the spade",
                   "a robin"],
        "help": ["watered the plants every evening", "pulled out the weeds",
                 "covered the young plants with straw", "mended the fence with new boards",
                 "ate the snails one by one"],
        "lines": ["In spring the gardener digs the beds and sows the seeds.",
                  "Roses need sun, water and a little patience.",
                  "The beans climb up the poles, and the pumpkins cover the ground.",
                  "Weeds grow faster than flowers.",
                  "A spade, a rake and a watering can stand in the shed.",
                  "In autumn the apples are ripe, and the leaves are swept together.",
                  "The soil is dark and soft after the rain.",
                  "Tomatoes like a warm place next to the wall.",
                  "The bees visit the flowers from morning till evening.",
                  "A hedge keeps the wind away from the young plants.",
                  "The roots take water from the ground.",
                  "In winter the garden sleeps under the snow."]},
}

OPENINGS = ["Once upon a time there was {a_hero} {place}.", "There once was {a_hero} {place}.",
            "{place_cap} there lived {a_hero}.", "Long ago {a_hero} lived {place}.",
            "One day {a_hero} sat {place}.", "This is the story of {a_hero} {place}."]
NAMINGS = ["The {noun} was called {name}.", "Everybody called the {noun} {name}.",
           "The name of the {noun} was {name}.", "Its friends called it {name}."]
WISHES = ["{name} wanted {thing} more than anything else.", "Every day {name} looked for {thing}.",
          "{name} had only one wish: {thing}.", "{name} was looking for {thing}.",
          "One morning {name} decided to find {thing}."]
TROUBLES = ["But {trouble}, and {name} did not know what to do.", "But it was not easy, because {trouble}.",
            "Then {trouble}, and {name} was sad.", "But {trouble}.", "However, {trouble}, and {name} had to wait."]
TRIES = ["{name} tried once and failed.", "{name} tried again and again.", "{name} thought about it all day.",
         "{name} sat down and thought for a while.", "{name} did not give up.", ""]
HELPS = ["Then {helper} came and asked what was wrong. \"I will help you,\" said {helper_the}. So {helper_the} {help}.",
         "In the evening {helper} came by. {helper_cap} {help}.",
         "Luckily {helper} heard about it and {help}.",
         "\"Can you help me?\" asked {name}. {helper_cap} smiled and {help}.",
         "At last {helper} {help}."]
ENDS = ["So {name} found {thing} in the end.", "After that everything was easy, and {name} was happy.",
        "Now {name} had {thing}, and both of them were glad.", "Before the night came, {name} had {thing}.",
        "And so the day ended well for {name}."]
MORALS = ["From that day on they were good friends.", "{name} said thank you and never forgot it.",
          "{name} learned that it is good to ask for help.", "Since then {name} helps others too.",
          "They sat together and laughed until the stars came out.", "And that is the end of the story."]


def article(words):
    return ("an " if words[0] in "aeiou" else "a ") + words


def upper_first(text):
    return text[0].upper() + text[1:]


def story(r, topic):
    """Returns what the story is about, with its article, and the text."""
    words = TOPICS[topic]
    hero = r.choice(words["hero"])
    helper = r.choice(words["helper"])
    # The helper's later mention takes the definite article.
    first, _, rest = helper.partition(" ")
    the = "the " + rest if first in ("a", "an", "two") else helper
    values = {
        "a_hero": article(hero), "noun": hero.split(" with ")[0].split(" who ")[0].split(" in ")[0]
        .split(" of ")[0].split()[-1], "name": r.choice(NAMES),
        "place": r.choice(words["place"]), "thing": r.choice(words["thing"]),
        "trouble": r.choice(words["trouble"]), "helper": helper, "helper_the": the,
        "helper_cap": upper_first(the), "help": r.choice(words["help"])}
    values["place_cap"] = upper_first(values["place"])
    steps = [OPENINGS, NAMINGS, WISHES, TROUBLES, TRIES, HELPS, ENDS, MORALS]
    text = " ".join(filter(None, (r.choice(step).format(**values) for step in steps)))
    return values["a_hero"], text


def description(r, topic):
    lines = TOPICS[topic]["lines"]
    return " ".join(r.sample(lines, r.randrange(4, 9)))
