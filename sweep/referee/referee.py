#!/usr/bin/env python3
"""Does a server of language models give the same answer to the same request, whoever else it serves?

    python3 sweep/referee/referee.py --url http://127.0.0.1:8042/v1 --field deterministic=true \\
        --control deterministic=false --out DIR

It asks any server that speaks OpenAI's API the same questions under many loads and counts unique answers. With
--against it compares a server that speculates with one that does not. README.md beside this file has the details.

Exit status: 0 no answer differed, and the control did; 1 an answer differed; 2 a fault of the command line; 3 no
verdict, because the load was too weak, there was no control, or the server could not be asked.
"""
import argparse
import collections
import contextlib
import json
import os
import sys
import threading
import time
import traceback

import loads
import report
from report import LEVELS
from server import DRAFTS, Refused, Server, Trouble, answers_of, bits, drafts_of

MOST_FAILURES = 5
OPTIONAL = ('return_token_ids', 'logprobs', 'top_logprobs', 'seed')  # left out, with a note, where a server refuses


class Tally:
    """The answers to one question. The first answer is the one that the others are compared with."""

    def __init__(self, question):
        self.question = question
        self.answers = []  # (suite, Answer)
        self.given = 0  # of them, 1 if the first is that of another run
        self.numbers = []  # of each answer, by level: which of the unique ones it is; what is missing is one of them
        self.unique = {level: {} for level in LEVELS}

    def add(self, suite, answer):
        views = {'text': answer.text, 'tokens': answer.tokens, 'logprobs': bits(answer.logprobs)}
        self.answers.append((suite, answer))
        self.numbers.append({level: unique.setdefault(view, len(unique))
                             for (level, view), unique in zip(views.items(), self.unique.values())})

    def differing(self, level, suite=None):
        """The indices of answers that differ from the first one."""
        return [i for i, n in enumerate(self.numbers) if n[level] and suite in (None, self.answers[i][0])]


class Run:
    """All suites, asked with one set of fields."""

    def __init__(self, role, server, options):
        self.role, self.server, self.options = role, server, options
        self.ordinary = {**dict(options.field), **dict(options.control)}
        self.fields = self.ordinary if role == 'control' else dict(options.field)
        self.speculates = bool(options.against)
        self.drafted, self.kept = None, 0  # drafts that the server says to have judged, and those that were right
        self.tallies, self.failures, self.notes, self.offered = {}, [], [], {'text'}
        self.asked = self.company = 0
        self.digits = 0  # most significant digits of a log-probability
        self.dropped, self.alternatives, self.no_n, self.ended_early = set(), 0, False, False
        self.fingerprint = None
        self.lock = threading.Lock()

    def body(self, question, n=1, ordinary=False, width=None):
        """The path and the body of a request."""
        body = {'model': self.options.model, 'max_tokens': question.tokens, 'temperature': question.temperature,
                'seed': question.seed, 'return_token_ids': True}
        if self.options.api == 'chat':
            body.update(messages=[{'role': 'user', 'content': question.prompt}], logprobs=True,
                        top_logprobs=self.alternatives)
        else:
            body.update(prompt=question.prompt, logprobs=self.alternatives)
        if n > 1:
            body['n'] = n
        if question.stop:
            body['stop'] = question.stop
        body = {name: value for name, value in body.items() if name not in self.dropped}
        body.update(self.ordinary if ordinary else self.fields)
        body.update([width] if width and self.speculates else [])
        return '/chat/completions' if self.options.api == 'chat' else '/completions', body

    def accepted(self, question):
        """The answer to a question, after the optional fields that the server refuses have been dropped."""
        while True:
            try:
                body = self.server.get(*self.body(question))
                return body, answers_of(body)[0]
            except Refused as refused:
                for name in self.fields:
                    if name in str(refused):
                        raise Trouble('%s refuses %s=%s of --field or --control: %s' % (
                            self.server.url, name, json.dumps(self.fields[name]), refused)) from None
                left = [f for f in OPTIONAL if f in self.body(question)[1] and f not in self.fields]
                if refused.status not in (400, 404, 422, 500, 501) or not left:
                    raise Trouble('%s refuses the request: %s' % (self.server.url, refused)) from None
                self.dropped.add(([f for f in left if f in str(refused)] or left)[0])

    def probe(self, question):
        """Learns which optional fields the server takes and what it returns. Returns its first answer."""
        body, answer = self.accepted(question)
        if answer.logprobs is None and 'logprobs' not in self.dropped:
            self.alternatives = 1  # some servers take 0 for none
            body, answer = self.accepted(question)
        self.fingerprint = body.get('system_fingerprint')
        self.notes += ['the server refuses the field %s, so it was left out' % name for name in sorted(self.dropped)]
        if answer.tokens is None:
            self.notes.append('the server returns no tokens: texts are compared')
        elif not all(isinstance(t, int) for t in answer.tokens):
            self.notes.append('the server returns no token ids: tokens are compared by how they are spelled')
        if answer.logprobs is None:
            self.notes.append('the server offers no log-probabilities: their bits are not compared')
        return answer

    def ask(self, suite, request):
        time.sleep(request.delay)
        self.ended_early = self.ended_early or time.monotonic() > self.options.end
        if self.ended_early:
            return
        try:
            body = self.server.get(*self.body(request.question, request.n, request.ordinary, request.width),
                                   request.leave)
            answers = answers_of(body) if body else []
        except Trouble as trouble:
            with self.lock:
                if time.monotonic() > self.options.end:
                    self.ended_early = True
                elif request.n > 1 and isinstance(trouble, Refused):
                    self.no_n = True
                    self.notes.append('the server refuses n=%d, so suite n was left out: %s' % (request.n, trouble))
                else:
                    self.failures.append('%s, question %s: %s' % (suite, request.question.name, trouble))
            return
        except Exception as error:  # what nobody has thought of must not lose an answer
            with self.lock:
                self.failures.append('%s, question %s: %s: %s' % (suite, request.question.name, type(error).__name__,
                                                                  error))
            return
        with self.lock:
            self.count(drafts_of(body or {}))
            self.asked += request.marked
            self.company += not request.marked
            if request.marked and len(answers) != request.n:
                self.no_n = True
                self.notes.append('the server ignores n=%d, so suite n was left out' % request.n)
            elif request.marked:
                for i, answer in enumerate(answers):
                    self.take(suite, request, i, answer)

    def take(self, suite, request, i, answer):
        """At temperature 0, and where the server says that it drew with seed + i, answer i has a twin that is alone."""
        question = request.question
        if question.temperature and i:
            question = loads.twin(question, i) if answer.seed == question.seed + i else question._replace(
                name='%s, answer %d of %d' % (question.name, i + 1, request.n))
        self.tallies.setdefault(question.name, Tally(question)).add(suite, answer)
        self.offered.update(level for level in LEVELS[1:] if getattr(answer, level))
        for value in answer.logprobs or ():
            self.digits = max(self.digits, len(repr(value).split('e')[0].replace('.', '').lstrip('-0')))

    def wave(self, suite, requests):
        """Sends the requests of a wave together, but not more than --clients at once."""
        waiting = collections.deque(requests)

        def client():
            with contextlib.suppress(IndexError):  # of an empty deque
                while True:
                    self.ask(suite, waiting.popleft())
        threads = [threading.Thread(target=client, daemon=True) for _ in requests[:self.options.clients]]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def count(self, drafts, before=(0, 0)):
        if drafts:
            self.drafted = (self.drafted or 0) + drafts[0] - before[0]
            self.kept += drafts[1] - before[1]

    def without_speculation(self, load):
        """The run that has the first answers of this one: each question is asked twice, alone and without drafts."""
        server = self.server if self.options.against_field else self.options.servers['against']
        run = Run(self.role, server, self.options)
        run.role, run.speculates = 'without', False
        run.fields = {**self.fields, **dict(self.options.against_field)}
        run.probe(load.questions[0])
        before = run.server.drafts()
        run.ask_alone(load.whole)
        if not load.behind:  # the control has the same questions
            load.derive({name: tally.answers[0][1] for name, tally in run.tallies.items()})
        run.ask_alone(load.all())
        run.count(before and run.server.drafts(), before)
        if run.failures or run.ended_early:
            raise Trouble(run.failures[0] if run.failures else 'the time was up before all questions had been asked '
                          'without speculation: set --limit')
        for level in LEVELS[:LEVELS.index(self.options.level) + 1]:
            if run.differ(level):
                raise Trouble('NO VERDICT: %s, asked alone, without speculation, with the fields of the %s run, does '
                              'not repeat its answers: %d of %d have other %s' % (
                                  run.server.url, self.role, run.differ(level), run.answers(), level))
        if run.drafted:
            raise Trouble('NO VERDICT: %s was asked without speculation, and says that it judged %d drafts: give '
                          'another --against' % (run.server.url, run.drafted))
        return run

    def ask_alone(self, questions):
        """Each question until it has two answers."""
        for _ in range(2):
            for question in questions:
                if self.failures or self.ended_early:
                    return
                progress('without speculation: %d answers' % self.answers())
                if question.name not in self.tallies or len(self.tallies[question.name].answers) < 2:
                    self.wave('without', [loads.Request(question)])

    def compare_with(self, without):
        """The first answers are those of a run without speculation, and count no more."""
        for name, tally in list(without.tallies.items()):
            self.tallies[name] = Tally(tally.question)
            self.tallies[name].add(*tally.answers[0])
            self.tallies[name].given = 1
        self.offered |= without.offered

    def run(self, load):
        """Asks all suites. What goes wrong stays in the run."""
        before = self.server.drafts()
        self.ask_suites(load)
        self.count(before and self.server.drafts(), before)

    def ask_suites(self, load):
        for suite in self.options.suite:
            progress('%s, suite %s: %d answers' % (self.role, suite, self.answers()))
            for requests in loads.SUITES[suite](load, load.random(suite)):
                if self.ended_early or len(self.failures) > MOST_FAILURES:
                    return
                if not self.no_n or requests[0].n == 1:
                    self.wave(suite, requests)
        if 0 < self.digits < 8:
            self.notes.append('log-probabilities have at most %d digits: bits behind them are not seen' % self.digits)

    def answers(self):
        return sum(len(t.answers) - t.given for t in self.tallies.values())

    def tests_drafts(self):
        """Whether drafts were neither all right nor all wrong, where this matters."""
        return not self.options.against or 0 < self.kept < (self.drafted or 0)

    def differ(self, level):
        return sum(len(t.differing(level)) for t in self.tallies.values())


def progress(line):
    if sys.stderr.isatty():
        sys.stderr.write('\r%s\033[K' % line)
        sys.stderr.flush()


def verdict(main, control, options):
    """(exit status, one line)."""
    judged = [level for level in LEVELS[:LEVELS.index(options.level) + 1] if level in main.offered]
    n = main.answers()
    first = 'than without speculation' if options.against else 'than the first answer to the same question'
    for level, what in (('text', 'texts'), ('tokens', 'tokens'), ('logprobs', 'bits of log-probabilities')):
        if level in judged and main.differ(level):
            return 1, 'DIFFERS: %d of %d answers have other %s %s' % (main.differ(level), n, what, first)
    for run in (main, control):
        if run and run.failures:
            return 3, 'NO VERDICT: %d requests failed, the first one so: %s' % (len(run.failures), run.failures[0])
        if run and run.ended_early:
            return 3, 'NO VERDICT: the time was up after %d answers, none of which differed: set --limit' % n
    texts = {t.answers[0][1].text for t in main.tallies.values()}
    if len(texts) < 2:
        return 3, 'TOO WEAK: all questions have the same answer (%r), so nothing can differ' % texts.pop()[:40]
    if options.against and main.drafted is None:
        return 3, 'NO VERDICT: no difference in %d answers, but the server does not say that it speculates: its ' \
            '/metrics has no %s, and its answers no timings.draft_n' % (n, DRAFTS[0])
    if not main.tests_drafts():
        return 3, 'TOO WEAK: of %d drafts %d were right, but both right and wrong ones have to be tested: give more ' \
            '--tokens, --prompts that it can guess, or another draft model' % (main.drafted, main.kept)
    if not control:
        return 3, 'NO VERDICT: no difference in %d answers, but without a control nothing shows that this load finds ' \
            'any: give --control or --control-url' % n
    found = max(control.differ(level) for level in judged)
    if not found:
        return 3, 'TOO WEAK: no answer of the control differed either, in %d: give more --trials, --tokens or ' \
            '--clients, or a control that can differ' % control.answers()
    if options.against:
        return 0, 'LOSSLESS: %d answers, none differs in %s from the one without speculation; of %d drafts %d were ' \
            'right; of %d answers of the control, %d differ' % (n, ' or '.join(judged), main.drafted, main.kept,
                                                                control.answers(), found)
    return 0, 'DETERMINISTIC: %d answers, none differs in %s; of %d answers of the control, %d do' % (
        n, ' or '.join(judged), control.answers(), found)


def field(text):
    name, _, value = text.partition('=')
    try:
        return name, json.loads(value)
    except ValueError:
        raise argparse.ArgumentTypeError("'%s' is not NAME=JSON, such as deterministic=true; a text needs quotes, as "
                                         "in user='\"me\"'" % text) from None


def field_or_url(text):
    return text if '://' in text else [field(text)]


def whole(least, most):
    def convert(text):
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError("'%s' is not a whole number from %d to %d" % (text, least, most))
        return int(text)
    return convert


def parse(arguments):
    about, end = __doc__.split('\n\n')[0], __doc__.split('\n\n')[-1]
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, description=about,
        epilog='Suites:\n' + '\n'.join('  %-8s %s' % (n, s.__doc__) for n, s in loads.SUITES.items()) + '\n\n' + end)
    add = parser.add_argument
    add('--url', required=True, help='base URL of the API, such as http://127.0.0.1:8000/v1')
    add('--model', help='its name (default: the only one that the server lists)')
    add('--api-key', default=os.environ.get('REFEREE_API_KEY'), metavar='KEY',
        help='bearer token (default: REFEREE_API_KEY of the environment, which others cannot see)')
    add('--api', choices=('completions', 'chat'), default='completions', help='which endpoint (default: completions)')
    add('--field', type=field, action='append', default=[], metavar='NAME=JSON',
        help='a field of the requests that are judged, such as deterministic=true; may be repeated')
    add('--control', type=field, action='append', default=[], metavar='NAME=JSON',
        help='a field of the control, in place of the same field of --field; may be repeated')
    add('--control-url', metavar='URL', help='another server of the same model, as the control')
    add('--against', type=field_or_url, metavar='URL|NAME=JSON',
        help='the server that does not speculate, or the field by which this one does not: the first answers are its')
    add('--width', type=field, action='append', default=[], metavar='NAME=JSON',
        help='a field that says how many tokens are drafted, by turns if it is repeated (default: none)')
    add('--level', choices=LEVELS, default='logprobs', help='what is promised to be equal, if returned (logprobs)')
    add('--temperature', type=float, nargs='+', default=[0.0], metavar='T', help='of the questions, by turns (0)')
    add('--seed', type=whole(0, 2**31 - 1), default=42, metavar='N', help='of the load and of sampling (42)')
    add('--prompts', metavar='FILE', help='questions, one a line (default: four, of 2 to 90 words)')
    add('--tokens', type=whole(1, 4096), default=64, metavar='N', help='most tokens of an answer (64)')
    add('--trials', type=whole(1, 256), default=8, metavar='N', help='waves of a suite, and its largest batch (8)')
    add('--clients', type=whole(1, 256), default=16, metavar='N', help='most requests at once (16)')
    add('--suite', choices=[*loads.SUITES, 'lossless'], nargs='+', metavar='NAME',
        help='suites; without --against also alone (default: all; with --against lossless: those that need it)')
    add('--timeout', type=whole(1, 86400), default=120, metavar='S', help='seconds for one request (120)')
    add('--limit', type=whole(1, 86400), default=1800, metavar='S', help='seconds for all (1800)')
    add('--out', metavar='DIR', help='write report.tsv and report.html there')
    options = parser.parse_args(arguments)
    if not all(0 <= t <= 2 for t in options.temperature):
        parser.error('--temperature: a number is not from 0 to 2')
    choose_suites(parser, options)
    options.texts = loads.PROMPTS
    try:
        options.servers = {'main': Server(options.url, options.api_key, options.timeout)}
        if options.control or options.control_url:
            options.servers['control'] = Server(options.control_url or options.url, options.api_key, options.timeout)
        if isinstance(options.against, str):
            options.servers['against'] = Server(options.against, options.api_key, options.timeout)
        if options.prompts:
            with open(options.prompts, encoding='utf-8') as file:
                options.texts = [line.rstrip('\n') for line in file if line.strip()]
        if not options.texts:
            parser.error('--prompts: %s has no line with a prompt' % options.prompts)
        if options.out:
            os.makedirs(options.out, exist_ok=True)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return options


def choose_suites(parser, options):
    usual = [name for name in loads.SUITES if name not in loads.LOSSLESS]
    chosen = set(options.suite or (['lossless'] if options.against else usual))
    chosen.update(loads.LOSSLESS if 'lossless' in chosen else (), () if options.against else ['alone'])
    options.suite = [name for name in loads.SUITES if name in chosen]
    needy = [name for name in options.suite if name in loads.LOSSLESS]
    if needy and not options.against:
        parser.error('--suite %s: it needs --against: the URL of a server that does not speculate, or the field by '
                     'which this one does not, as in draft=0' % needy[0])
    if options.width and not options.against:
        parser.error('--width: it needs --against, because answers with drafts are compared with those without')
    options.against_field = options.against if isinstance(options.against, list) else []


def choose_model(server, options):
    names = server.models()
    if options.model is None:
        if not names:
            raise Trouble('%s does not list its models: name one by --model' % server.url)
        if len(names) != 1:
            raise Trouble('%s lists the models (%s): choose one by --model' % (server.url, ', '.join(names)))
        options.model = names[0]
    elif names and options.model not in names:
        raise Trouble("%s: no model '%s': it lists %s" % (server.url, options.model, ', '.join(names)))


def main(arguments=None):
    options = parse(arguments)
    options.end = time.monotonic() + options.limit
    for server in options.servers.values():
        server.end = options.end
    try:
        choose_model(options.servers['main'], options)
        runs = [Run(role, server, options) for role, server in options.servers.items() if role != 'against']
        load = loads.Load(options)
        probes = [run.probe(load.questions[0]) for run in runs]  # faults of the fields show before the long part
        load.says_seed = probes[0].seed is not None
        others = [run.without_speculation(load) for run in runs if options.against]
    except Trouble as trouble:
        print('referee: %s' % trouble, file=sys.stderr)
        return 3
    for run, other in zip(runs, others):
        run.compare_with(other)
        ended = sum(t.answers[0][1].finish == 'stop' and not t.question.stop for t in other.tallies.values())
        run.notes.append('%d of %d answers without speculation end at an end token%s' % (
            ended, len(other.tallies), '' if ended else ', so none is tested inside drafts: give other --prompts'))
    runs[0].run(load)
    status, line = verdict(runs[0], None, options)
    if status == 1 or runs[0].failures or runs[0].ended_early:
        runs = runs[:1]  # which needs no control
        if status == 1 and options.against:  # how many differ by the load alone
            others[0].compare_with(others[0])
            others[0].run(load)
            runs.append(others[0])
            line += '; without speculation the same load changes %d of %d' % (
                others[0].differ(next(filter(runs[0].differ, LEVELS))), others[0].answers())
    elif len(runs) > 1 and runs[0].tests_drafts():
        runs[1].run(load)
        status, line = verdict(*runs, options)
    progress('')
    print(report.text(runs, line, options))
    if options.out:
        report.write(runs, status, line, options)
    return status


if __name__ == '__main__':
    try:
        sys.exit(main())
    except (Exception, KeyboardInterrupt):  # Python's own status would be 1, which means that an answer differed
        traceback.print_exc()
        sys.exit(3)
