"""What the referee found: as text, as tab-separated values, and as a page of HTML that needs no other file."""
import html
import os

LEVELS = ('text', 'tokens', 'logprobs')
COLUMNS = ('run', 'suite', 'question', 'temperature', 'seed', 'answers', *('unique_' + level for level in LEVELS),
           *('differ_' + level for level in LEVELS), 'first_character', 'first_token', 'first_logprob',
           'greatest_difference')
COLOURS = '#2f6f4f #c8553d #e9a03b #4a6fa5 #8c5e9e #b5a642 #5aa9a4 #9c4f63'.split()  # of unique answers


def first_difference(a, b):
    """Where two sequences part, or None. NaN equals NaN."""
    for i, (x, y) in enumerate(zip(a or (), b or ())):
        if x != y and not (x != x and y != y):
            return i
    return None if len(a or ()) == len(b or ()) else min(len(a or ()), len(b or ()))


def greatest_difference(a, b):
    """Of log-probabilities at positions before which all tokens are equal."""
    pairs = list(zip(a.logprobs or (), b.logprobs or ()))[:first_difference(a.tokens, b.tokens)]
    return max([abs(x - y) for x, y in pairs if x == x and y == y], default=0)


def rows(run):
    """The values of COLUMNS for each suite and question; unique answers are counted with the first of all."""
    for suite in run.options.suite:
        for tally in run.tallies.values():
            mine = [i for i, (s, _) in enumerate(tally.answers) if s == suite]
            if not mine:
                continue
            first, others = tally.answers[0][1], [tally.answers[i][1] for i in mine]
            unique, differ, earliest = [], [], []
            for level in LEVELS:
                offered = level in run.offered
                unique.append(len({tally.numbers[i][level] for i in [0, *mine]}) if offered else '')
                differ.append(len(tally.differing(level, suite)) if offered else '')
                found = [first_difference(getattr(first, level), getattr(other, level)) for other in others]
                earliest.append(min((at for at in found if at is not None), default=''))
            greatest = '%.3g' % max(greatest_difference(first, a) for a in others) if 'logprobs' in run.offered else ''
            yield (run.role, suite, tally.question.name, tally.question.temperature, tally.question.seed, len(mine),
                   *unique, *differ, *earliest, greatest)


def by_suite(run):
    """(suite, answers, differing by level, first differing token or character), with '-' where there is none."""
    at = COLUMNS.index('first_token' if 'tokens' in run.offered else 'first_character')
    table = list(rows(run))
    for suite in run.options.suite:
        mine = [row for row in table if row[1] == suite]
        if mine:
            differ = [sum(r[9 + i] or 0 for r in mine) if mine[0][9 + i] != '' else '-' for i in range(len(LEVELS))]
            yield suite, sum(r[5] for r in mine), *differ, min((r[at] for r in mine if r[at] != ''), default='-')


def header(runs, line, options):
    yield 'verdict', line
    for run in runs:
        yield run.role + ' server', run.server.url + ', model %s' % options.model + (
            ', ' + run.fingerprint if run.fingerprint else '')
        yield run.role + ' fields', ', '.join('%s=%s' % f for f in run.fields.items()) or 'none'
        if options.against and run.drafted is not None:
            yield run.role + ' drafts', '%d judged, of which %d were right' % (run.drafted, run.kept)
        yield run.role + ' load', '%d answers to %d requests, beside %d others; %d failed' % (
            run.answers(), run.asked, run.company, len(run.failures))
        for note in dict.fromkeys(run.notes):
            yield run.role + ' note', note
    if options.against:
        yield 'against', options.against if isinstance(options.against, str) else '%s=%s' % options.against[0]
    yield 'options', 'api %s, tokens %d, trials %d, clients %d, seed %d, temperature %s, suites %s' % (
        options.api, options.tokens, options.trials, options.clients, options.seed,
        ','.join('%g' % t for t in options.temperature), ','.join(options.suite))


def example(run):
    """(where, value, other value) of the first answer that differs most visibly, or None."""
    for level, what in zip(LEVELS, ('character', 'token', 'log-probability')):
        for tally in run.tallies.values():
            for i in tally.differing(level)[:1]:
                a, b = [getattr(answer, level) or () for _, answer in (tally.answers[0], tally.answers[i])]
                at = first_difference(a, b)
                part = slice(at, at + (60 if level == 'text' else 4))
                return 'For example, question %s in suite %s, from %s %d on:' % (
                    tally.question.name, tally.answers[i][0], what, at), repr(a[part]), repr(b[part])
    return None


def text(runs, line, options):
    lines = ['%-16s %s' % (name + ':', value) for name, value in header(runs, line, options)][1:]
    for run in runs:
        lines += ['', '%s: answers that differ from the first one to the same question%s' % (
            run.role, ', asked without speculation' if options.against else ''),
                  'suite     answers     text   tokens  logprobs  first %s' %
                  ('token' if 'tokens' in run.offered else 'character')]
        lines += ['%-8s %8s %8s %8s %9s  %s' % numbers for numbers in by_suite(run)]
        if example(run):
            lines += ['', '%s\n  first  %s\n  later  %s' % example(run)]
    return '\n'.join(lines + ['', line])


def write(runs, status, line, options):
    with open(os.path.join(options.out, 'report.tsv'), 'w', encoding='utf-8') as file:
        file.writelines('# %s: %s\n' % (name, ' '.join(value.split())) for name, value in header(runs, line, options))
        file.writelines('\t'.join(map(str, row)) + '\n' for row in [COLUMNS, *(r for run in runs for r in rows(run))])
    with open(os.path.join(options.out, 'report.html'), 'w', encoding='utf-8') as file:
        file.write('\n'.join(page(runs, status, line, options)) + '\n')


STYLE = '''body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}.verdict{padding:.8rem 1rem;color:#fff;border-radius:6px}
.s0{background:#2f6f4f}.s1{background:#b23a2a}.s3{background:#8a6d1f}table{border-collapse:collapse;margin:.5rem 0}
td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:right;vertical-align:top}.left td,.left th,
td:first-child,th:first-child{text-align:left;white-space:nowrap}.left td+td{overflow-wrap:anywhere}
.bad{color:#b23a2a;font-weight:600}svg{margin-right:6px;vertical-align:middle}
pre{background:#f5f3ee;padding:.7rem;white-space:pre-wrap;margin:.4rem 0}'''


def page(runs, status, line, options):
    yield '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    yield '<title>%s</title><style>%s</style>' % (line.split(':')[0].capitalize(), STYLE)
    yield '<h1>Does this server give the same answer to the same request?</h1>'
    yield '<p class="verdict s%d">%s</p><table class="left">' % (status, html.escape(line))
    for name, value in list(header(runs, line, options))[1:]:
        yield '<tr><td>%s<td>%s' % (name, html.escape(value))
    yield '</table>'
    for run in runs:
        yield '<h2>%s: answers that differ from the first one to the same question</h2>' % (
            {'main': 'The server that is judged', 'control': 'The control, which must differ',
             'without': 'The same load without speculation'}[run.role])
        yield '<table><tr><th>suite<th>answers<th>text<th>tokens<th>log-probabilities<th>first %s' % (
            'token' if 'tokens' in run.offered else 'character')
        for suite, answers, *differ, at in by_suite(run):
            cells = ''.join('<td%s>%s' % (' class="bad"' if d not in (0, '-') else '', d) for d in differ)
            yield '<tr><td>%s<td>%d%s<td>%s' % (suite, answers, cells, at)
        yield '</table>'
        if example(run):
            yield '<p>%s<pre>%s</pre><pre>%s</pre>' % tuple(html.escape(part) for part in example(run))
        finest = [level for level in LEVELS if level in run.offered][-1]
        yield '<p>Each square is an answer, in the order in which they came, with a gap between suites. Squares of a ' \
            'row have one colour if their answers have the same %s, and the colour of the first one is green.' % {
                'text': 'text', 'tokens': 'tokens', 'logprobs': 'bits of their log-probabilities'}[finest]
        yield '<table class="left"><tr><th>question<th>answers'
        for tally in run.tallies.values():
            yield '<tr><td>%s<td>%s' % (html.escape(tally.question.name), ''.join(squares(run, tally, finest)))
        yield '</table>'


def squares(run, tally, level):
    """A picture for each suite."""
    for suite in run.options.suite:
        numbers = [n[level] or 0 for (s, _), n in zip(tally.answers, tally.numbers) if s == suite]
        if numbers:
            yield '<svg width="%d" height="14"><title>suite %s: %d answers, %d unique</title>%s</svg>' % (
                9 * len(numbers), suite, len(numbers), len(set(numbers)),
                ''.join('<rect x="%d" width="8" height="14" fill="%s"/>' % (9 * i, COLOURS[n and 1 + (n - 1) % 7])
                        for i, n in enumerate(numbers)))
