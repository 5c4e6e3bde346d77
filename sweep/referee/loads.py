"""The loads under which the referee asks: each suite is a generator of waves of requests that are sent together.

A question is what must have one answer. Company are requests beside it whose answers nobody compares. All that is drawn
is drawn from the seed, so the requests are the same in each run; when the server gets to them is up to the clock.
"""
import collections
import itertools
import random

# stop: None, or the string before which an answer ends.
Question = collections.namedtuple('Question', 'name prompt temperature seed tokens stop', defaults=(None,))
# question, or company if `marked` is false; n: answers asked for; delay: seconds into the wave; leave: seconds after
# which the client goes away, or None; ordinary: sent with the fields of the control; width: one of --width, or None.
Request = collections.namedtuple('Request', 'question marked n delay leave ordinary width',
                                 defaults=(True, 1, 0, None, False, None))

PROMPTS = [
    'It was',
    'The landlord opened the door, and',
    'It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a '
    'wife. However little known the feelings or views of such a man may be on his first entering a neighbourhood,',
    'Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in my purse, and '
    'nothing particular to interest me on shore, I thought I would sail about a little and see the watery part of the'
    ' world. It is a way I have of driving off the spleen and regulating the circulation. Whenever I find myself '
    'growing grim about the mouth; whenever it is a damp, drizzly November in my soul; whenever I find myself '
    'involuntarily pausing before coffin warehouses,',
]
ENDS = ['', ' and then', ' but the old man said', ' so they went on']  # of prompts that share a beginning
WORDS = 'the of and to in a was he it his that with had she her for at on not but'.split()


def twin(question, i):
    """What answer i of n is alone, where servers draw it with seed + i."""
    return question._replace(name='%s, seed +%d' % (question.name, i), seed=question.seed + i)


class Load:
    """What the suites draw from."""

    def __init__(self, options):
        self.trials, self.tokens, self.clients = options.trials, options.tokens, options.clients
        self.seed, self.temperatures = options.seed, options.temperature
        self.has_control, self.says_seed = bool(options.control), False  # says_seed: answers name their seeds
        self.widths = itertools.cycle(options.width or [None])
        self.width_count = len(options.width or [None])
        self.questions = [self.question(str(i + 1), prompt, i) for i, prompt in enumerate(options.texts)]
        words = max(options.texts, key=len).split(' ')
        cuts = [max(1, len(words) * (i + 1) // (len(ENDS) + 1)) for i in range(len(ENDS))]
        self.family = [self.question('prefix%d' % (i + 1), ' '.join(words[:cut]) + end, i)
                       for i, (cut, end) in enumerate(zip(cuts, ENDS))]
        drawn = [twin(q, i) for q in self.questions + self.family if q.temperature for i in range(1, 4)]
        self.whole = self.questions + self.family + drawn
        self.ends, self.behind = [], {}  # questions that follow from the answers without speculation: see derive

    def question(self, name, prompt, i):
        return Question(name, prompt, self.temperatures[i % len(self.temperatures)], self.seed + 1000 * i, self.tokens)

    def derive(self, answers):
        """Questions whose answers end inside the answers to others, and those that repeat a part of them.

        answers: by the names of the questions that load.whole has."""
        rng = self.random('derive')
        for question in self.whole:
            text = answers[question.name].text
            cuts = sorted(rng.randrange(1, max(2, len(text))) for _ in range(3))
            for cut, length in zip(cuts, (2, 5, 11)):
                if text[cut:cut + length].strip():
                    self.ends.append(question._replace(name='%s, stop at %d+%d' % (question.name, cut, length),
                                                       stop=text[cut:cut + length]))
            for most in rng.sample(range(1, self.tokens), min(2, self.tokens - 1)):
                self.ends.append(question._replace(name='%s, %d tokens' % (question.name, most), tokens=most))
            self.behind[question] = [
                question._replace(name='%s, and %d characters%s' % (question.name, cut, end and ', then other words'),
                                  prompt=question.prompt + text[:cut] + end)
                for cut, end in zip(cuts, ('', '', ENDS[1]))]

    def all(self):
        return self.whole + self.ends + [q for questions in self.behind.values() for q in questions]

    def speculated(self, question):
        """A request with the next width."""
        return Request(question, width=next(self.widths))

    def random(self, suite):
        return random.Random('%s %d' % (suite, self.seed))

    def company(self, rng, words, tokens, **when):
        text = ' '.join(rng.choice(WORDS) for _ in range(words))
        question = Question('company', text, rng.choice([0, 0.8]), rng.randrange(1 << 30), tokens)
        return Request(question, False, ordinary=self.has_control and rng.random() < 0.5, **when)


def alone(load, _rng):
    """each question alone, several times"""
    for _ in range(2):
        for question in load.questions + load.family:
            yield [Request(question)]


def single(load, _rng):
    """one question in batches of 1 to N copies"""
    question = load.questions[len(load.questions) // 2]
    for n in range(1, load.trials + 1):
        yield [Request(question)] * n


def mixed(load, rng):
    """different questions in batches of 1 to N"""
    for n in range(1, load.trials + 1):
        yield [Request(rng.choice(load.questions)) for _ in range(n)]


def prefix(load, rng):
    """questions with a common beginning, when the prefix cache has more or less of it"""
    for _ in range((load.trials + 1) // 2):
        order = rng.sample(load.family, len(load.family))
        for question in order:
            yield [Request(question)]
        yield [Request(question) for question in order]


def growing(load, rng):
    """a question beside prompts that grow by one word from wave to wave, and come while it decodes"""
    for k in range(load.trials):
        wave = [Request(load.questions[k % len(load.questions)])]
        for i, words in enumerate((1 + k, 24 + k, 90 + k)):
            wave.append(load.company(rng, words, 2 + 4 * i, delay=0.01 * (i + 1)))
        yield wave


def samples(load, rng):
    """n answers to one question, alone and in company"""
    for k in range(max(2, load.trials // 2)):
        question = load.questions[k % len(load.questions)]
        wave = [Request(question, n=2 + k % 3)]
        if k >= len(load.questions):
            wave += [load.company(rng, rng.randrange(1, 60), 16) for _ in range(3)]
        yield wave
        if load.says_seed and question.temperature > 0:
            yield [Request(twin(question, i)) for i in range(1, 2 + k % 3)]


def order(load, rng):
    """all questions together, in another order each time"""
    questions = load.questions + load.family
    for k in range((load.trials + 1) // 2):
        shuffled = rng.sample(questions, len(questions))
        yield [Request(q, delay=0.01 * i * (k % 2)) for i, q in enumerate(shuffled)]


def mix(load, rng):
    """random waves: company of any length, arrivals at once, in bursts or one by one, clients that go away"""
    for _ in range(load.trials):
        gap, burst = rng.choice([(0, 1), (0.02, 3), (0.01, 1)])
        wave = [Request(rng.choice(load.questions + load.family)) for _ in range(rng.randrange(1, 5))]
        for _ in range(rng.randrange(0, load.clients)):
            leave = rng.choice([0.02, 0.1]) if rng.random() < 0.2 else None
            wave.append(load.company(rng, rng.choice([1, 8, 30, 100]), rng.randrange(1, 2 * load.tokens), leave=leave))
        rng.shuffle(wave)
        yield [r._replace(delay=gap * (i // burst)) for i, r in enumerate(wave)]


def drafts(load, _rng):
    """with --against: each question alone, with each --width"""
    for question in load.whole:
        for _ in range(load.width_count):
            yield [load.speculated(question)]


def ends(load, _rng):
    """with --against: stop strings, end tokens and limits, which come inside drafts, alone and together"""
    for question in load.ends:
        yield [load.speculated(question)]
    for i in range(0, len(load.ends), load.clients):
        yield [load.speculated(question) for question in load.ends[i:i + load.clients]]


def behind(load, _rng):
    """with --against: prompts that repeat a part of an answer, which the prefix cache has behind rejected drafts"""
    for question, longer in load.behind.items():
        for wave in [question], longer[:1], longer, [question]:
            yield [load.speculated(q) for q in wave]


def crowd(load, rng):
    """with --against: all of these at random, beside company that comes late and goes away"""
    longer = [q for questions in load.behind.values() for q in questions]
    for _ in range(load.trials):
        wave = [load.speculated(rng.choice(rng.choice([load.whole, load.ends, longer]))) for _ in range(load.clients)]
        for _ in range(rng.randrange(load.clients)):
            leave = rng.choice([0.02, 0.1]) if rng.random() < 0.2 else None
            wave.append(load.company(rng, rng.choice([1, 8, 30, 100]), rng.randrange(1, 2 * load.tokens), leave=leave,
                                     delay=rng.choice([0, 0.02, 0.1]), width=next(load.widths)))
        yield rng.sample(wave, len(wave))


SUITES = {'alone': alone, 'single': single, 'mixed': mixed, 'prefix': prefix, 'growing': growing, 'n': samples,
          'order': order, 'random': mix, 'drafts': drafts, 'ends': ends, 'behind': behind, 'crowd': crowd}
LOSSLESS = ('drafts', 'ends', 'behind', 'crowd')  # what `--suite lossless` stands for
