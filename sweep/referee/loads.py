"""The loads under which the referee asks: each suite is a generator of waves of requests that are sent together.

A question is what must have one answer. Company are requests beside it whose answers nobody compares. All that is drawn
is drawn from the seed, so the requests are the same in each run; when the server gets to them is up to the clock.
"""
import collections
import random

Question = collections.namedtuple('Question', 'name prompt temperature seed tokens')
# question, or company if `marked` is false; n: answers asked for; delay: seconds into the wave; leave: seconds after
# which the client goes away, or None; ordinary: sent with the fields of the control.
Request = collections.namedtuple('Request', 'question marked n delay leave ordinary',
                                 defaults=(True, 1, 0, None, False))

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
        self.questions = [self.question(str(i + 1), prompt, i) for i, prompt in enumerate(options.texts)]
        words = max(options.texts, key=len).split(' ')
        cuts = [max(1, len(words) * (i + 1) // (len(ENDS) + 1)) for i in range(len(ENDS))]
        self.family = [self.question('prefix%d' % (i + 1), ' '.join(words[:cut]) + end, i)
                       for i, (cut, end) in enumerate(zip(cuts, ENDS))]

    def question(self, name, prompt, i):
        return Question(name, prompt, self.temperatures[i % len(self.temperatures)], self.seed + 1000 * i, self.tokens)

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


SUITES = {'alone': alone, 'single': single, 'mixed': mixed, 'prefix': prefix, 'growing': growing, 'n': samples,
          'order': order, 'random': mix}
