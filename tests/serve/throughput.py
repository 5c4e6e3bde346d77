#!/usr/bin/env python3
"""Measures build/serve beside the engine alone: the same answers, from one prompt with one seed each.

    OMP_NUM_THREADS=1 python3 tests/serve/throughput.py [--model examples/tiny42] [--answers 64] [--tokens 200]

The engine alone is `build/generate --samples`, timed by itself from when the engine is open, which has all requests
before its first pass. build/serve is timed by its client, from the first byte sent to the last byte received, in three
ways. In `whole` and `stream` each answer is a request of its own, over a connection of its own, so that requests reach
the engine one after the other while passes run. In `one` a single request asks for all answers by `n`, so that the
engine has them at once, as in `build/generate`. Runs take turns. The result is a table with the medians of tokens/s,
their ranges, and the median of the ratios to the engine's run of the same turn. Then come the mean time of a pass, from
the call of the backend until it returns, and the time outside of passes, divided by the passes, in microseconds, and
the number of passes. Where others keep the cores busy, each moment that HTTP or the client takes is lost to the engine.
So there is also the CPU time of the engine's thread (of the engine alone: of its process, less that of a run with one
token an answer), and the ratio of its speeds by that clock. With --backend cuda this time says nothing, since the
thread waits for the GPU, and it is nan. The client does no more than to read bytes.
"""
import argparse
import math
import re
import resource
import selectors
import statistics
import subprocess
import sys
import time

from client import Server, post


def engine(args, tokens):
    """(Tokens/s, CPU seconds, seconds in passes, passes) of the engine alone."""
    ids = ['--ids', ','.join(map(str, args.prompt)), '--ids-out'] if args.ids else ['--prompt', args.prompt, '--json']
    command = [args.build + '/generate', '--model', args.model, *args.engine, *ids, '-n', str(tokens), '--samples',
               str(args.answers), '--temperature', '1', '--seed', '1', '--ignore-eos', '--stats']
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run(command + ['--deterministic'] * args.deterministic, capture_output=True, text=True,
                          check=True).stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    passes = re.search('passes: ([0-9]+) FAST, ([0-9]+) INVARIANT, ([0-9]+) FIXED, in ([0-9.]+) s', said).groups()
    return (float(re.search(r'\(([0-9.]+) tokens/s\)', said).group(1)), cpu, float(passes[3]),
            sum(map(int, passes[:3])))


def passes_of(server):
    """(Seconds in passes, passes) of a server so far."""
    return tuple(sum(server.metric('llm42:%s{schedule="%s"}' % (name, schedule))
                     for schedule in ('fast', 'fixed', 'invariant'))
                 for name in ('pass_seconds_total', 'passes_total'))


def cpu_of(server, args):
    """CPU seconds of the server's engine thread, the first of its process."""
    if args.backend == 'cuda':
        return math.nan
    with open('/proc/%d/task/%d/schedstat' % (server.process.pid, server.process.pid)) as file:
        return int(file.read().split()[0]) / 1e9


def ask(server, args, how):
    """(Tokens/s, CPU seconds, seconds in passes, passes) of all answers at once."""
    requests = [post({'prompt': args.prompt, 'max_tokens': args.tokens, 'temperature': 1, 'seed': i + 1,
                      'ignore_eos': True, 'stream': how == 'stream', 'n': args.answers if how == 'one' else 1,
                      'deterministic': args.deterministic}).replace(b'Host: x', b'Host: x\r\nConnection: close')
                for i in range(1 if how == 'one' else args.answers)]
    sockets, done = [server.raw() for _ in requests], selectors.DefaultSelector()
    before = passes_of(server)
    begin, cpu = time.perf_counter(), cpu_of(server, args)
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
    seconds, cpu = time.perf_counter() - begin, cpu_of(server, args) - cpu
    assert server.metric('vllm:request_success_total{finished_reason="length"}') % args.answers == 0
    return (args.answers * args.tokens / seconds, cpu, *(b - a for a, b in zip(before, passes_of(server))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--build', default='build')
    parser.add_argument('--model', default='examples/tiny42')
    parser.add_argument('--ids', action='store_true', help='the prompt as token ids, for a model without a tokenizer')
    parser.add_argument('--answers', type=int, default=64)
    parser.add_argument('--tokens', type=int, default=200)
    parser.add_argument('--repeats', type=int, default=7)
    parser.add_argument('--deterministic', action='store_true')
    parser.add_argument('--backend', choices=['cpu', 'cuda'], default='cpu')
    parser.add_argument('--preset', default='dvr')
    parser.add_argument('--algorithm-file', help='with --backend cuda: the same matrix algorithms for all')
    args = parser.parse_args()
    args.prompt = [1, 2, 3] if args.ids else 'It was'
    room = args.tokens + 16  # the prompt has a few tokens
    args.engine = ['--backend', args.backend, '--preset', args.preset, '--kv-tokens', str(args.answers * (room + 16))]
    if args.algorithm_file:
        args.engine += ['--algorithm-file', args.algorithm_file]
    runs = {'engine': [], 'whole': [], 'stream': [], 'one': []}
    begins = math.nan if args.backend == 'cuda' else engine(args, 1)[1]
    with Server(args.build, '--model', args.model, '--max-context', str(room), *args.engine) as server:
        ask(server, args, 'whole')
        for _ in range(args.repeats):
            rate, cpu, *passes = engine(args, args.tokens)
            runs['engine'].append((rate, cpu - begins, *passes))
            for how in ('whole', 'stream', 'one'):
                if args.backend == 'cuda':
                    ask(server, args, how)  # a GPU slows down where it waits, so each run has one before it
                runs[how].append(ask(server, args, how))
    print('how\ttokens_per_s\tlow\thigh\tratio\tpass_us\toutside_us\tcpu_s\tcpu_ratio\tpasses')
    for how, run in runs.items():
        rate, cpu, busy, passes = zip(*run)
        tokens = args.answers * args.tokens
        inside = statistics.median(1e6 * b / p for b, p in zip(busy, passes))
        outside = statistics.median(1e6 * (tokens / r - b) / p for r, b, p in zip(rate, busy, passes))
        ratios = [statistics.median(mine[i] / alone[i] for mine, alone in zip(run, runs['engine'])) for i in (0, 1)]
        print('%s\t%.1f\t%.1f\t%.1f\t%.3f\t%.1f\t%.1f\t%.3f\t%.3f\t%g' % (
            how, statistics.median(rate), min(rate), max(rate), ratios[0], inside, outside, statistics.median(cpu),
            1 / ratios[1], statistics.median(passes)))


if __name__ == '__main__':
    sys.exit(main())
