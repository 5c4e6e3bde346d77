#!/usr/bin/env python3
"""Measures build/serve beside the engine alone: the same answers, from one prompt with one seed each.

    OMP_NUM_THREADS=1 python3 tests/serve/throughput.py [--model examples/tiny42] [--answers 64] [--tokens 200]

The engine alone is `build/generate --samples`, timed by itself from when the engine is open. build/serve is timed by its
client, from the first byte sent to the last byte received, once with whole answers and once with streams; each answer is
a request of its own, over a connection of its own. Runs take turns. The result is a table with the medians of tokens/s,
their ranges, and the median of the ratios to the engine's run of the same turn, which a computer that others share
disturbs least. The client does no more than to read bytes, because it shares the computer, too.
"""
import argparse
import re
import selectors
import statistics
import subprocess
import sys
import time

from client import Server, post


def engine(args, extra):
    command = [args.build + '/generate', '--model', args.model, '--prompt', 'It was', '--samples', str(args.answers),
               '-n', str(args.tokens), '--temperature', '1', '--seed', '1', '--ignore-eos', '--json', '--stats', *extra]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return float(re.search(r'\(([0-9.]+) tokens/s\)', said).group(1))


def ask(server, args, stream):
    """Tokens/s of all answers at once."""
    requests = [post({'prompt': 'It was', 'max_tokens': args.tokens, 'temperature': 1, 'seed': i + 1, 'ignore_eos': True,
                      'stream': stream, 'deterministic': args.deterministic}).replace(b'Host: x', b'Host: x\r\nConnection: close')
                for i in range(args.answers)]
    sockets, done = [server.raw() for _ in requests], selectors.DefaultSelector()
    begin = time.perf_counter()
    for s, request in zip(sockets, requests):
        s.sendall(request)
        done.register(s, selectors.EVENT_READ)
    left = len(sockets)
    while left:
        for key, _ in done.select():
            if not key.fileobj.recv(1 << 20):
                done.unregister(key.fileobj)
                key.fileobj.close()
                left -= 1
    seconds = time.perf_counter() - begin
    assert server.metric('vllm:request_success_total{finished_reason="length"}') % args.answers == 0
    return args.answers * args.tokens / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--build', default='build')
    parser.add_argument('--model', default='examples/tiny42')
    parser.add_argument('--answers', type=int, default=64)
    parser.add_argument('--tokens', type=int, default=200)
    parser.add_argument('--repeats', type=int, default=7)
    parser.add_argument('--deterministic', action='store_true')
    args = parser.parse_args()
    extra = ['--deterministic'] if args.deterministic else []
    rates = {'engine': [], 'whole': [], 'stream': []}
    with Server(args.build, '--model', args.model) as server:
        ask(server, args, False)
        for _ in range(args.repeats):
            rates['engine'].append(engine(args, extra))
            rates['whole'].append(ask(server, args, False))
            rates['stream'].append(ask(server, args, True))
    print('how\ttokens_per_s\tlow\thigh\tratio')
    for how, rate in rates.items():
        median = statistics.median(rate)
        ratio = statistics.median(a / b for a, b in zip(rate, rates['engine']))
        print('%s\t%.1f\t%.1f\t%.1f\t%.3f' % (how, median, min(rate), max(rate), ratio))


if __name__ == '__main__':
    sys.exit(main())
