#!/usr/bin/env python3
"""Asks build/serve deterministic requests under random loads, and compares each answer with that of build/generate.

    python3 tests/serve/campaign.py [--build build] [--loads 20] [--requests 100] [--seed 42]

A load has REQUESTS deterministic requests and some ordinary ones beside them. How many clients ask at once, the preset,
how many answers run at once, streams or not, and every request are drawn at random. build/generate computes each request
by itself: as a file of requests, of which one runs at a time. An answer is equal if all ids and all bits of their
log-probabilities are. The ordinary requests are the control: of those, some must differ. The result is a table, with a
row for each load; the exit status is 1 if a deterministic answer differs, or no ordinary one does.
"""
import argparse
import json
import queue
import random
import subprocess
import sys
import tempfile

from client import Server, joined, together, whole

STARTS = ['It was the best of times', 'Once upon a time', 'The landlord', 'I had no idea', 'He went on', 'Mr. Pickwick',
          'In the middle of the night', 'She looked at him and', 'Chapter 1. The ship', 'No one knew where the old man']
PRESETS = ['dvr', 'best', 'invariant', 'paper']
COLUMNS = ['load', 'preset', 'clients', 'running', 'deterministic', 'tokens', 'differ', 'ordinary', 'ordinary_differ',
           'rollbacks']


def draw(rng, deterministic):
    """A request over HTTP."""
    prompt = ' '.join(rng.choice(STARTS) for _ in range(rng.choice([1, 1, 2, 6, 30])))
    return {'prompt': prompt, 'max_tokens': rng.randrange(8, 120), 'temperature': rng.choice([0, 0, 0.7, 1]),
            'top_p': rng.choice([1, 0.9]), 'top_k': rng.choice([0, 40]), 'seed': rng.randrange(1, 2**40),
            'stop': rng.choice([None, None, ['\n'], [' the end', '. The']]), 'deterministic': deterministic,
            'logprobs': rng.choice([0, 0, 3]), 'return_token_ids': True}


def alone(build, preset, requests):
    """What build/generate answers to each of them by itself."""
    fields = ('prompt', 'max_tokens', 'temperature', 'top_p', 'top_k', 'seed', 'stop', 'deterministic')
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + '/in.jsonl', 'w') as file:
            for request in requests:
                file.write(json.dumps({f: request[f] for f in fields}) + '\n')
        subprocess.run([build + '/generate', '--threads', '1', '--preset', preset, '--max-running', '1', '--batch',
                        folder + '/in.jsonl', '--out', folder + '/out.jsonl'], check=True)
        with open(folder + '/out.jsonl') as file:
            return [json.loads(line) for line in file]


def ask_all(server, requests, clients, rng):
    """The choices of all requests, asked by so many clients at once."""
    waiting, answers = queue.SimpleQueue(), [None] * len(requests)
    for i in rng.sample(range(len(requests)), len(requests)):
        waiting.put((i, rng.random() < 0.5))

    def client():
        while True:
            try:
                i, stream = waiting.get_nowait()
            except queue.Empty:
                return
            if stream:
                answers[i] = joined(server.stream(**requests[i]))[0]
            else:
                answers[i] = whole(server.get('/v1/completions', **requests[i]))[0]
    for error in filter(None, together([client] * clients)):
        raise error
    return answers


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--build', default='build')
    parser.add_argument('--loads', type=int, default=20)
    parser.add_argument('--requests', type=int, default=100)
    parser.add_argument('--seed', type=int, default=42)
    args = parser.parse_args()
    print('\t'.join(COLUMNS), flush=True)
    wrong = ordinary_differ = 0
    for load in range(args.loads):
        rng = random.Random(args.seed * 1000 + load)
        preset, clients, running = PRESETS[load % 4], rng.choice([2, 8, 24, 64]), rng.choice([4, 16, 32, 64])
        requests = [draw(rng, i < args.requests) for i in range(args.requests + rng.choice([20, 50, 100]))]
        with Server(args.build, '--threads', '1', '--preset', preset, '--max-running', str(running)) as server:
            answers = ask_all(server, requests, clients, rng)
            rollbacks = server.metric('llm42:rollbacks_total')
        differ, tokens = [0, 0], 0
        for request, answer, own in zip(requests, answers, alone(args.build, preset, requests)):
            same = (answer['token_ids'], [l[1] for l in answer['logprobs']], answer['text'], answer['finish_reason']) == \
                (own['ids'], own['logprobs'], own['text'], own['finish'])
            differ[not request['deterministic']] += not same
            tokens += len(answer['token_ids']) * request['deterministic']
        wrong, ordinary_differ = wrong + differ[0], ordinary_differ + differ[1]
        print(load, preset, clients, running, args.requests, tokens, differ[0], len(requests) - args.requests, differ[1],
              int(rollbacks), sep='\t', flush=True)
    return 1 if wrong or not ordinary_differ else 0


if __name__ == '__main__':
    sys.exit(main())
