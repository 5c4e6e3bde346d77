#!/usr/bin/env python3
"""Asks build/serve in the ways of clients that are careless, broken or hostile, beside some that are neither.

    python3 tests/serve/hostile.py SECONDS [BUILD]

Bodies are random or almost right, headers are cut or too long, connections are closed in the middle, half closed, left
alone or not read from, and streams are dropped. Meanwhile good clients ask deterministic requests. Each of their answers
must have the bits that the request had before, or be refused with 429 or 503 in OpenAI's form; a request that was taken
is answered in full. In the end nothing may be left running. It goes on for SECONDS, and before that for a quarter of
SECONDS, after which memory must not grow. Between these two, 1,000 connections stand open at once, and the server is
killed and begun anew while it is asked. All connections are of the loopback range.
"""
import http.client
import json
import random
import resource
import signal
import socket
import struct
import sys
import threading
import time

from client import Server, joined, post, together, whole

GOOD = [{'prompt': 'Once upon a time', 'max_tokens': 24, 'deterministic': True, 'temperature': t, 'seed': s, 'n': n,
         'return_token_ids': True, 'logprobs': 2} for t, s, n in ((0, 1, 1), (1, 5, 2), (0.8, 9, 4))]
FIELDS = ['prompt', 'max_tokens', 'temperature', 'n', 'seed', 'stop', 'stream', 'logprobs', 'echo', 'top_p', 'top_k',
          'deterministic', 'model', 'messages', 'stream_options', 'min_p', 'bogus', 'logit_bias', 'best_of']
VALUES = [None, True, False, 0, 1, 2, -1, 0.5, 1e300, 2**62, '', 'x', 'It was', '\x00', '\udcff', [], [[]], [0, 905],
          [[0, 905], [0]], ['It was', 'I'], [2**40], ['a'] * 20, {}, {'include_usage': True}, {'a': [{}]},
          [{'role': 'user', 'content': 'hi'}], [{'role': 'x'}], 'a' * 5000]


def body(rng):
    """A body of JSON that is more or less right, or not JSON."""
    fields = {'prompt': 'It was', 'max_tokens': rng.choice([0, 1, 5, 60])}
    for _ in range(rng.randrange(4)):
        fields[rng.choice(FIELDS)] = rng.choice(VALUES)
    data = json.dumps(fields).encode('utf-8')
    kind = rng.randrange(6)
    if kind == 0:
        data = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == 1:
        data = data[:rng.randrange(len(data))]
    elif kind == 2:
        data = rng.choice([b'[' * 3000, b'{"prompt": "' + bytes(rng.randrange(256) for _ in range(300)) + b'"}', b'',
                           b'{"a": 1, "a": 2}', b'9' * 4000, b'"' + b'\\u0000' * 500 + b'"'])
    return bytes(data)


def attack(server, rng):
    """One thing that a bad client does. Errors of the socket are what it deserves."""
    kind = rng.randrange(10)
    long = {'prompt': 'It was', 'max_tokens': 400, 'n': 4, 'stream': rng.random() < 0.5}
    if kind < 4:
        data = post(body(rng))
    elif kind == 4:
        data = bytes(rng.randrange(256) for _ in range(rng.randrange(400)))
    elif kind == 5:
        data = post(b'{', 10**rng.randrange(1, 12))  # a body that does not come
    elif kind == 6:
        data = rng.choice([b'GET /', b'HEAD /', b'GET http://']) + b'a' * rng.randrange(100000) + b' HTTP/1.1\r\n'
    elif kind == 7:
        data = b'POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n' + rng.choice([b'5\r\n{', b'zz', b''])
    else:
        data = post(long)
    try:
        with server.raw() as s:
            s.settimeout(5)
            for part in range(0, len(data), 30000):
                s.sendall(data[part:part + 30000])
            how = rng.randrange(5)
            if how == 0:
                s.shutdown(socket.SHUT_WR)
            if how == 1:
                time.sleep(rng.random())
            elif how < 4 and kind != 5:
                s.recv(rng.choice([1, 100, 100000]))
    except OSError:
        pass


def good(server, request, expected, stream):
    """Asks a request whose answer is known. True: it came; False: it was refused."""
    status, _, text = server.ask('/v1/completions', {**request, 'stream': stream})
    if status in (429, 503):
        assert json.loads(text)['error']['code'] in ('queue_full', 'draining'), text
        return False
    assert status == 200, (status, text)
    if stream:
        assert text.endswith('data: [DONE]\n\n'), text[-200:]
        got = joined([json.loads(line[6:]) for line in text.split('\n') if line.startswith('data: {')])
    else:
        got = whole(json.loads(text))
    assert got == expected, (request, got, expected)
    return True


def run(server, seconds, bad=12, well=4, seed=42):
    """Both kinds of clients for so long. Returns counts; raises what went wrong."""
    expected = [whole(server.complete(**request)) for request in GOOD]
    end = time.monotonic() + seconds
    counts = {'attacks': 0, 'answered': 0, 'refused': 0}
    wrong, lock = [], threading.Lock()

    def worker(number, is_good):
        rng = random.Random(seed * 1000 + number)
        while time.monotonic() < end and not wrong:
            try:
                if is_good:
                    i = rng.randrange(len(GOOD))
                    came = good(server, GOOD[i], expected[i], rng.random() < 0.5)
                    key = 'answered' if came else 'refused'
                else:
                    attack(server, rng)
                    key = 'attacks'
                with lock:
                    counts[key] += 1
            except Exception as error:
                wrong.append(error)
    together([lambda i=i: worker(i, i < well) for i in range(bad + well)])
    if wrong:
        raise wrong[0]
    return counts


def crowd(server, count=1000, seed=1):
    """So many connections at once: some silent, some in the middle of a request, some with a long answer coming, and
    some good. All but the good ones are reset. Returns how many good ones were answered and refused."""
    expected = [whole(server.complete(**request)) for request in GOOD]
    long = post({'prompt': 'It was', 'max_tokens': 400, 'n': 4, 'stream': True})
    rng, bad, well, counts = random.Random(seed), [], [], {True: 0, False: 0}
    for i in range(count):
        kind = rng.randrange(4)
        if kind == 0:
            number = rng.randrange(len(GOOD))
            well.append((number, server.raw(post(GOOD[number]))))
        else:
            bad.append(server.raw((b'', long, long[:rng.randrange(1, len(long))])[kind - 1]))
    rng.shuffle(bad)
    for s in bad:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        s.close()
    for number, s in well:
        with s:
            response = http.client.HTTPResponse(s)
            response.begin()
            answer = json.loads(response.read())
            assert response.status in (200, 429), (response.status, answer)
            assert response.status == 429 or whole(answer) == expected[number], (GOOD[number], answer)
            counts[response.status == 200] += 1
    return counts[True], counts[False]


def kill(build, times):
    """Kills the server while clients ask it, and begins it anew on its port. What came whole before must be right; what
    did not come whole must be an error for its client, and the new server answers the same."""
    port, answered = '0', 0
    for i in range(times):
        with Server(build, '--threads', '1', '--port', port) as server:
            port = str(server.port)
            expected = [whole(server.complete(**request)) for request in GOOD]
            first = expected if i == 0 else first
            assert expected == first, 'the server that was begun anew answers otherwise'
            end = time.monotonic() + 0.3 + 0.1 * i

            def ask(number):
                came = 0
                while True:
                    request = GOOD[number % len(GOOD)]
                    try:
                        came += good(server, request, expected[number % len(GOOD)], number % 2 == 1)
                    except (OSError, http.client.HTTPException):
                        return came

            def stop():
                time.sleep(max(0, end - time.monotonic()))
                server.process.send_signal(signal.SIGKILL)
            *came, _ = together([lambda n=n: ask(n) for n in range(8)] + [stop])
            for one in came:
                if isinstance(one, Exception):
                    raise one
            answered += sum(came)
    return answered


def main():
    seconds, build = float(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else 'build'
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    options = '--threads 1 --read-timeout 2 --max-queue 64 --max-connections 1200'.split()
    with Server(build, *options) as server:
        warm = run(server, seconds / 4, bad=40, well=8)  # until then memory is what so many clients need at once
        print('crowd_answered\t%d\ncrowd_refused\t%d' % crowd(server))
        print('killed_answered\t%d' % kill(build, 5), flush=True)
        server.wait_for('vllm:num_requests_running', 0)
        begin = server.rss()
        counts = run(server, seconds, bad=40, well=8, seed=7)
        server.wait_for('vllm:num_requests_running', 0)
        server.wait_for('vllm:num_requests_waiting', 0)
        end = server.rss()
        print('attacks\t%(attacks)d\nanswered\t%(answered)d\nrefused\t%(refused)d' % counts)
        print('rss_begin_kib\t%d\nrss_end_kib\t%d' % (begin, end))
        assert warm['answered'] and counts['answered'], 'no good client was answered'
        assert end < begin * 1.1 + 2048, 'memory has grown'
        assert server.end() == 0, 'its exit status is not 0'


if __name__ == '__main__':
    main()
