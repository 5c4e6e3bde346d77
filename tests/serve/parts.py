#!/usr/bin/env python3
"""The parts of tests/test_serve.sh: each starts build/serve and asks it something.

    B=build python3 tests/serve/parts.py --list
    B=build python3 tests/serve/parts.py PART...
"""
import http.client
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import hostile
from client import Server, joined, post, together, whole

B = os.environ.get('B', 'build')
SLOW = os.environ.get('TEST_SLOW', '0') != '0'
LONG = {'max_tokens': 2000, 'n': 64, 'ignore_eos': True}  # takes long enough to be ended before it ends
PROMPTS = ['It was the best of times', 'Once upon a time', 'The landlord', 'I had no idea', 'He went on',
           'Mr. Pickwick']


def serve(*options):
    return Server(B, '--threads', '1', *options)


def generate(prompt, **how):
    """The samples of build/generate, run alone."""
    command = [B + '/generate', '--threads', '1', '--json', '--prompt', prompt]
    for name, value in how.items():
        name = ('-' if len(name) == 1 else '--') + name.replace('_', '-')
        command += [name] if value is True else [] if value is False else [name, str(value)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def refused(server, status, param, pattern, fields=None, path='/v1/completions', **how):
    """The request is refused in OpenAI's form, for this field, in words that have the pattern."""
    got, headers, text = server.ask(path, {'prompt': 'It was', **fields} if isinstance(fields, dict) else fields, **how)
    error = json.loads(text)['error']
    assert (got, error['param']) == (status, param) and pattern in error['message'], (got, text, status, param, pattern)
    assert set(error) == {'message', 'type', 'param', 'code'} and error['type'] and error['code'], error
    assert headers['Content-Type'] == 'application/json'
    return headers


def refused_chat(server, status, param, pattern, fields):
    refused(server, status, param, pattern, json.dumps(fields).encode(), path='/v1/chat/completions')


def part_endpoints():
    with serve('--name', 'some/model') as server:
        assert server.get('/health') == {'status': 'ok'}
        models = server.get('/v1/models')
        assert [m['id'] for m in models['data']] == ['some/model'] and models['data'][0]['max_model_len'] == 2048
        assert server.get('/v1/models/some/model')['object'] == 'model'
        answer = server.complete(max_tokens=20, temperature=0, deterministic=True, model='some/model')
        choice = answer['choices'][0]
        assert choice['text'] == ' a very fine day, and the day was gone. I had to go to the house, and', choice
        assert choice['finish_reason'] == 'length' and choice['deterministic'] and answer['model'] == 'some/model'
        assert answer['usage'] == {'prompt_tokens': 3, 'completion_tokens': 20, 'total_tokens': 23}
        assert answer['object'] == 'text_completion' and answer['id'].startswith('cmpl-')
        assert len(server.complete(temperature=0)['choices'][0]['text']) > 16  # 16 tokens unless the request says
        assert server.metric('vllm:generation_tokens_total') == 36
        assert server.metric('vllm:num_requests_running') == 0
        assert server.metric('llm42:passes_total{schedule="fast"}') > 0
        assert server.metric('llm42:pass_seconds_total{schedule="fast"}') > 0
        assert server.metric('llm42:windows_total') > 0 and server.metric('llm42:deterministic_tokens_total') == 20
        assert server.metric('vllm:time_to_first_token_seconds_count') == 2
        assert server.metric('vllm:request_success_total{finished_reason="length"}') == 2
        many = server.complete(['It was', 'Once'], n=2, max_tokens=4, temperature=0)
        assert [c['index'] for c in many['choices']] == [0, 1, 2, 3] and many['usage']['completion_tokens'] == 16
        assert many['choices'][2]['text'] == server.complete('Once', max_tokens=4, temperature=0)['choices'][0]['text']
        ids = server.complete([0, 441, 280], max_tokens=3, temperature=0, return_token_ids=True)
        assert len(ids['choices'][0]['token_ids']) == 3
        assert whole(server.complete([[0, 441, 280]], max_tokens=3, temperature=0)) == \
            whole(server.complete([0, 441, 280], max_tokens=3, temperature=0))
        two = server.connect()  # a connection is used again
        for method in ('GET', 'HEAD', 'GET'):
            two.request(method, '/health')
            response = two.getresponse()
            assert (response.status, response.headers['Content-Length']) == (200, '15'), (method, response.status)
            assert response.read() == (b'' if method == 'HEAD' else b'{"status":"ok"}')
        two.close()
        assert server.ask('/v1/completions', method='HEAD')[0] == 405


def part_targets():
    """RFC 9112, 3.2.2: the target of a request may be a whole URL, and names the same as its path."""
    with serve('--api-key', 'secret') as server:
        own = {'Host': 'localhost'}
        key = {'Authorization': 'Bearer secret', **own}
        for host in ('http://x', 'HTTP://other.example:80', 'https://[::1]:8042', 'http://x:y@z', 'http://'):
            assert server.ask(host + '/health', headers=own)[2] == '{"status":"ok"}'
            assert server.ask(host + '/health?a=http://x/', headers=own, method='HEAD')[0] == 200
            assert server.ask(host + '/v1/models', headers=key)[2] == server.ask('/v1/models', headers=key)[2]
            body = {'prompt': 'It was', 'max_tokens': 4, 'temperature': 0}
            status, _, text = server.ask(host + '/v1/completions', body, key)
            assert status == 200 and json.loads(text)['choices'][0]['text'] == ' a very fine day', text
            refused(server, 401, None, 'API key', body, path=host + '/v1/completions', headers=own)
            refused(server, 401, None, 'API key', path=host + '/v1/models', headers=own)
        for target, path in (('http://x', '/'), ('http://x?a=/health', '/'), ('http://x/', '/'), ('http:/health', None),
                             ('ftp://x/health', None), ('/http://x/health', None), ('//x/health', None), ('*', None)):
            refused(server, 404, None, '%s: there are' % (path or target), path=target, headers=own)


def part_hosts():
    """A page in a browser may call this server by a name of its own (DNS rebinding): it is not answered."""
    body = {'prompt': 'It was', 'max_tokens': 1}
    for options, fine, foreign in (
            ((), ('localhost', 'LOCALHOST:80', '127.0.0.1', '127.0.0.1:9', '[::1]', '[::1]:8042'),
             ('evil.example', 'evil.example:8042', 'localhost.evil.example', 'localhost:1@evil.example', '', '127.0.0.2',
              '::1', '[::1', 'a.example')),
            (('--host-name', 'a.example', '--host-name', 'b'), ('localhost:1', 'a.example', 'A.Example:80', 'b'),
             ('evil.example', 'c'))):
        with serve(*options) as server:
            for host in fine:
                assert server.ask('/health', headers={'Host': host})[0] == 200, host
                assert server.ask('/v1/completions', body, {'Host': host})[0] == 200, host
            for host in foreign:
                for path, what in (('/health', None), ('/metrics', None), ('/v1/models', None), ('/v1/completions', body)):
                    refused(server, 403, None, "Host: '%s' is no name of this server" % host, what, path=path,
                            headers={'Host': host})
            two = server.raw(b'GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n')
            assert two.recv(12) == b'HTTP/1.1 403'
            assert server.metric('llm42:http_responses_total{code="5xx"}') == 0
    # Where a body ends must be clear, or a proxy and the server could see two requests in different places.
    with serve() as server:
        length, chunked = b'Content-Length: %d\r\n', b'Transfer-Encoding: chunked\r\n'
        data = json.dumps(body).encode()
        for framing in (2 * (length % len(data)), length % 0 + length % len(data), length % len(data) + length % 3,
                        chunked + length % len(data), length % len(data) + chunked, chunked + chunked):
            s = server.raw(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n'
                           + framing + b'\r\n')
            s.settimeout(20)
            said = b''
            while part := s.recv(1 << 16):  # it is closed, so what follows is no second request
                said += part
            assert said.startswith(b'HTTP/1.1 400') and b'where the body ends' in said, (framing, said)
            assert said.count(b'HTTP/1.1 ') == 1 and b'onnection: close' in said, said
        assert server.complete(max_tokens=1)


def part_headers():
    """RFC 9112: what libmicrohttpd reads in another way than a proxy might is refused at once, and the connection closed."""
    data = json.dumps({'prompt': 'It was', 'max_tokens': 1}).encode()
    host, length = b'Host: localhost\r\n', b'Content-Length: %d\r\n' % len(data)
    chunks = b'%x\r\n%s\r\n0\r\n\r\n' % (len(data), data)

    def said(headers, body=data, version=b'1.1'):
        s, begin = server.raw(b'POST /v1/completions HTTP/%s\r\nContent-Type: application/json\r\n' % version + headers
                              + b'\r\n' + body), time.monotonic()
        s.settimeout(1)
        text = b''
        try:
            while part := s.recv(1 << 16):
                text += part
        except TimeoutError:
            text += b' and open'
        assert time.monotonic() - begin < 5, headers
        return text

    with serve() as server:
        for start, headers, body in (
                (b'400', host + length.replace(b':', b' :') + b'Content-Length: 50\r\n', data),
                (b'400', host + length.replace(b':', b'\t:'), data), (b'400', host + length + b'A(: b\r\n', data),
                (b'400', host + b'Transfer-Encoding : chunked\r\n' + length, data),
                (b'400', host + b'Host : evil.com\r\n' + length, data), (b'400', b': a\r\n' + host + length, data),
                (b'400', b'Host: localhost\r\n .evil.com\r\n' + length, data),
                (b'400', b'Host:\r\n evil.com\r\n' + length, data), (b'400', host + length + b'A: b\r\n\tc\r\n', data),
                (b'400', host + b'Content-Length: 5\r\n 0\r\n', data),
                *((b'400', a + b'Host: localhost' + nul + b'\r\n' + b, data) for a, b in ((b'', length), (length, b''))
                  for nul in (b'\0', b'\0.evil.com', b'\0\0.evil.com')),
                *((b'501', host + b'Transfer-Encoding: %s\r\n' % coding, chunks)
                  for coding in (b'xchunked', b'identity', b'gzip, chunked', b'chunked, chunked', b''))):
            text = said(headers, body)
            assert text.startswith(b'HTTP/1.1 ' + start) and text.count(b'HTTP/1.1 ') == 1, (headers, text)
            assert b'onnection: close' in text and not text.endswith(b' and open'), (headers, text)
        for headers in (b'', host + host):
            assert said(headers + length).startswith(b'HTTP/1.1 400'), headers
        for headers, body, version in (
                (host + length, data, b'1.1'), (length, data, b'1.0'), (length + host, data, b'1.1'),
                (host + b'Transfer-Encoding: Chunked\r\n', chunks, b'1.1'), (host + b'a:b\r\nC: \r\n' + length, data, b'1.1'),
                ((host + b'A: \t b c \r\n' + length).replace(b'\r', b''), data, b'1.1'),
                (host + b'A: %s\r\nB: %s\r\n' % (b'a' * 30000, b'b' * 10000) + length, data, b'1.1')):
            assert said(headers, body, version).split(b' ', 1)[1].startswith(b'200'), headers[:200]


def part_stream():
    with serve() as server:
        for fields in ({}, {'logprobs': 3}, {'logprobs': 0, 'echo': True}, {'echo': True}, {'stop': ['e d', ' of']},
                       {'n': 3, 'return_token_ids': True}, {'max_tokens': 0, 'echo': True, 'logprobs': 2},
                       {'temperature': 1000, 'n': 4, 'top_p': 1}):
            fields = {'prompt': ['It was', 'Once upon'], 'max_tokens': 40, 'deterministic': True, 'seed': 5, **fields}
            events = list(server.stream(**fields))
            assert joined(events) == whole(server.get('/v1/completions', **fields)), fields
            assert all(event['object'] == 'text_completion' for event in events)
        usage = list(server.stream(prompt='It was', max_tokens=4, stream_options={'include_usage': True}))
        assert usage[-1]['choices'] == [] and usage[-1]['usage']['completion_tokens'] == 4
        assert all(event['usage'] is None for event in usage[:-1])
        tokens = 200 if SLOW else 1500
        events = server.stream(prompt='It was', max_tokens=tokens, n=8, ignore_eos=True)  # it comes as it is computed
        next(events)
        running = server.metric('vllm:num_requests_running')
        assert running == 8 or SLOW, running
        count = sum(1 for _ in events)
        assert count > 160, count


def part_stop():
    with serve() as server:
        fields = {'max_tokens': 20, 'temperature': 0, 'return_token_ids': True}
        for deterministic in (True, False):
            fields['deterministic'] = deterministic
            for stop, text, finish in ((None, None, 'length'), ('ine day, and t', ' a very f', 'stop'),
                                       (['gone', ' fine day', 'day,'], ' a very', 'stop'), (' ', '', 'stop'),
                                       (' was', ' a very fine day, and the day', 'stop'),
                                       ('and the day after', None, 'length')):
                for choice in (whole(server.complete(stop=stop, **fields))[0],
                               joined(server.stream(prompt='It was', stop=stop, **fields))[0]):
                    assert choice['finish_reason'] == finish, choice
                    assert text is None or choice['text'] == text, (stop, choice)
        before = server.metric('vllm:generation_tokens_total')  # counts what clients got, as usage does
        got = [server.complete(stop=stop, n=n, max_tokens=m, temperature=0)['usage']['completion_tokens']
               for stop, n, m in (('ine', 3, 40), (' ', 1, 40), (None, 2, 0), ('and', 2, 40))]
        assert server.metric('vllm:generation_tokens_total') - before == sum(got), got
        a = server.complete(stop='day, a', **fields)['choices'][0]['token_ids']
        assert len(a) == 6, a  # up to the token with which the stop string is whole


def part_seeds():
    with serve() as server:
        fields = {'max_tokens': 30, 'return_token_ids': True, 'logprobs': 0, 'deterministic': True}
        answers = whole(server.complete(n=4, **fields))
        assert len({tuple(a['token_ids']) for a in answers}) == 4 and len({a['seed'] for a in answers}) == 4, answers
        for a in answers:  # a seed that was returned gives the answer again
            assert whole(server.complete(seed=a['seed'], **fields))[0] == a
        seeds = {seed: [a['seed'] for a in whole(server.complete(n=64, seed=seed, max_tokens=1))] for seed in range(1, 9)}
        assert all(drawn[0] == seed for seed, drawn in seeds.items()), 'answer 0 draws with the seed itself'
        assert len({s for drawn in seeds.values() for s in drawn}) == 8 * 64, 'requests share seeds'
        assert seeds[7][:3] == [a['seed'] for a in whole(server.complete(n=3, seed=7, max_tokens=1))]
        assert max(s for drawn in seeds.values() for s in drawn) < 2**53, 'a seed that JavaScript would round'
        assert [a['seed'] for a in answers] == [a['seed'] for a in whole(server.complete(n=4, seed=42, max_tokens=1))] \
            == [a['seed'] for a in whole(server.complete(n=4, seed=0, max_tokens=1))]
        own = generate('It was', n=3, samples=3, seed=7, temperature=1)  # and build/generate draws with the same
        assert [a['seed'] for a in own] == seeds[7][:3], own
        two = whole(server.complete(['It was', 'It was'], n=2, seed=7, **fields))
        assert two[:2] == two[2:] and two[0] != two[1]
        most = 2**63 - 1 - 4096  # a seed that is returned can be given, here and to generate, also the largest one
        assert generate('It was', seed=most, n=1)[0]
        assert whole(server.complete(n=3, seed=most, max_tokens=1))[0]['seed'] == most
        refused(server, 400, 'seed', 'outside', {'n': 3, 'seed': most + 1})


def part_logprobs():
    with serve() as server:
        for preset in ('dvr', 'paper'):
            with serve('--preset', preset) as other:
                a = other.complete('Once upon a time', max_tokens=40, deterministic=True, logprobs=5, seed=3)
            logprobs = a['choices'][0]['logprobs']
            for token, logprob, top in zip(logprobs['tokens'], logprobs['token_logprobs'], logprobs['top_logprobs']):
                assert top[token] == logprob and 5 <= len(top) <= 6, (token, logprob, top)
        # The prompt's and the answer's are those of build/score, to the bit.
        prompt = 'It was the best of times, it was the worst of times'
        a = server.complete(prompt, max_tokens=12, deterministic=True, logprobs=1, echo=True, temperature=0,
                            return_token_ids=True)['choices'][0]
        score = subprocess.run([B + '/score', '--text', prompt + a['text'][len(prompt):]], capture_output=True,
                               text=True, check=True).stdout.splitlines()[1:]
        want = [float(line.split('\t')[2]) for line in score]
        assert a['logprobs']['token_logprobs'][1:] == want, (a, want)
        assert a['logprobs']['token_logprobs'][0] is None and a['text'].startswith(prompt)
        for text, offset in zip(a['logprobs']['tokens'][1:], a['logprobs']['text_offset'][1:]):
            assert a['text'][offset:].startswith(text), (text, offset)
        # Scoring alone gives the same; and so it does under load, and in pieces of a prompt.
        long = (prompt + '. ') * (8 if SLOW else 60)
        alone = server.complete(long, max_tokens=0, echo=True, logprobs=1, deterministic=True)['choices'][0]
        got = together([lambda i=i: server.complete([long, PROMPTS[i % 6]], max_tokens=i % 2, echo=True, logprobs=1,
                                                    deterministic=i % 3 > 0) for i in range(12)])
        for i, answer in enumerate(got):
            logprobs = answer['choices'][0]['logprobs']['token_logprobs'][:len(alone['logprobs']['token_logprobs'])]
            assert logprobs == alone['logprobs']['token_logprobs'] or i % 3 == 0, i
        assert server.complete(prompt, max_tokens=4, logprobs=0)['choices'][0]['logprobs']['top_logprobs'][0] is None


def part_broken():
    """Bytes that are no UTF-8: of tiny42's tokens 160 is the byte E2, 224 is 80 and 34 is A."""
    with serve() as server:
        def ask(prompt, **how):
            return server.complete(prompt, temperature=0, deterministic=True, **how)['choices'][0]
        token = {i: ask([0, i], max_tokens=0, echo=True, logprobs=0)['logprobs']['tokens'][1] for i in (160, 224, 34)}
        assert token == {160: 'bytes:\\xe2', 224: 'bytes:\\x80', 34: 'A'}, token
        # As in Python there is one U+FFFD for the longest part of a character.
        for ids, text, offsets in (([160, 224, 34], '\ufffdA', [0, 0, 1]), ([160, 160, 34], '\ufffd\ufffdA', [0, 1, 2]),
                                   ([224, 224, 34], '\ufffd\ufffdA', [0, 1, 2]), ([160, 224], '\ufffd', [0, 0]),
                                   ([34, 160], 'A\ufffd', [0, 1])):
            a = ask([0] + ids, max_tokens=0, echo=True, logprobs=0)
            assert a['text'] == text and a['logprobs']['text_offset'] == [0] + offsets, (ids, a)
        # A character that the prompt begins is the prompt's: the answer says nothing of it, unless it echoes.
        own = ask([0, 160, 224], max_tokens=3)['text']
        assert '\ufffd' not in own and ask([0, 160, 224], max_tokens=3, echo=True)['text'] == '\ufffd' + own, own
        # A stop string is what a client sees, also where that is U+FFFD.
        how = dict(prompt=[0, 34], max_tokens=60, temperature=5, seed=8, deterministic=True)
        text = server.complete(**how)['choices'][0]['text']
        at = text.index('\ufffd', 1)
        for stop in ('\ufffd', text[at - 1:at + 2]):
            for choice in (whole(server.complete(stop=stop, **how))[0], joined(server.stream(stop=stop, **how))[0]):
                assert choice['text'] == text[:text.index(stop)] and choice['finish_reason'] == 'stop', (stop, choice)


def part_errors():
    with serve('--max-body', '100000', '--max-queue', '10', '--max-running', '4') as server:
        refused(server, 400, None, 'not JSON: line 1', b'{"prompt": ')
        refused(server, 400, None, 'not JSON', b'')
        refused(server, 400, None, 'must be an object', b'[1]')
        refused(server, 400, None, 'duplicate', b'{"n": 1, "n": 2}')
        for param, value, pattern in (
                ('prompt', None, 'must be a text'), ('prompt', 5, 'must be a text'), ('prompt', [], 'no tokens'),
                ('prompt', [[0], 5], 'a list of either'), ('prompt', [2048], 'from 0 to 2047'), ('prompt', [-1], 'item 0'),
                ('prompt', [0] * 2048, 'the context of 2048'), ('prompt', [0, 1.5], 'item 1'),
                ('max_tokens', 2046, 'has room for 2045'), ('max_tokens', -1, 'outside 0'),
                ('max_tokens', '5', 'a whole number'), ('temperature', -0.1, 'outside 0'),
                ('temperature', 1e-5, 'outside 0.0001 to 1000'), ('temperature', 'hot', 'a number'), ('temperature', 1e-60, 'would be rounded'),
                ('top_p', 0, 'above 0'), ('top_p', 1.1, 'outside'), ('top_k', -2, 'outside'),
                ('min_p', 2, 'outside'), ('n', 0, 'outside'), ('n', 15, 'outside 1 to 14'), ('n', True, 'whole number'),
                ('seed', -1, 'outside'), ('seed', 1.5, 'whole number'), ('stop', 5, 'a string'),
                ('stop', [''], 'not empty'), ('stop', ['a'] * 17, 'at most 16'), ('stream', 'yes', 'true or false'),
                ('stream_options', 1, 'an object'),
                ('stream_options', {'include': True}, 'include: no such field'), ('logprobs', 21, 'outside 0 to 20'), ('echo', 1, 'true or false'),
                ('deterministic', 'yes', 'true or false'), ('bogus', 1, 'no such field'),
                ('messages', [], 'no such field'), ('logit_bias', {'5': 1}, 'leave it out'), ('best_of', 2, 'give n, 1'),
                ('frequency_penalty', 0.5, 'or give 0'), ('suffix', 'x', 'leave it out'),
                ('min_tokens', 5, 'no least length here'), ('stop_token_ids', [1], 'use stop'),
                ('skip_special_tokens', False, 'or give true'), ('use_beam_search', True, 'no beam search'),
                ('include_stop_str_in_output', True, 'before its stop string'),
                ('stream_options', {'continuous_usage_stats': True}, 'the last event alone'),
                ('response_format', {'type': 'json_object'}, 'no answer is forced into a form such as JSON here'),
                ('response_format', {'type': 'json_schema', 'json_schema': {}}, 'check the answer')):
            headers = refused(server, 400, param, pattern, {param: value})
            assert headers['Content-Type'] == 'application/json'
        refused(server, 400, 'is_deterministic', 'differs', {'is_deterministic': True, 'deterministic': False})
        refused(server, 400, 'n', 'more than 14', {'prompt': ['a'] * 8, 'n': 2})
        refused(server, 404, 'model', "'gpt-4' is not here: this server has 'tiny42'", {'model': 'gpt-4'})
        refused(server, 404, 'model', 'is not here', {'model': 'tiny42\0x'})
        refused(server, 404, None, "'gpt-4' is not here: this server has 'tiny42'", path='/v1/models/gpt-4')
        refused(server, 404, None, 'there are /v1/completions', {}, path='/v1/modelsx')
        for number in (b'18446744073709551615', b'1e400'):  # it is JSON all the same
            refused(server, 400, None, 'whole numbers are below 2^63', b'{"prompt": "a", "seed": %s}' % number)
        refused(server, 404, None, 'there are /v1/completions', path='/v1/nothing')
        assert refused(server, 405, None, 'use POST', path='/v1/completions')['Allow'] == 'POST'
        assert refused(server, 405, None, 'use GET', {}, path='/v1/models')['Allow'] == 'GET, HEAD'
        refused(server, 413, None, 'more than 100000 bytes', {'prompt': 'a' * 100000})
        s = server.raw(post(b'x', 1 << 40))  # nobody waits for so much
        assert s.recv(12) == b'HTTP/1.1 413'
        refused(server, 415, None, 'application/json', {}, headers={'Content-Type': 'text/plain'})
        refused(server, 415, None, 'application/json', {}, headers={'Content-Type': 'application/json-patch+json'})
        for path in ('/v1/responses', '/v1/responses/x'):
            refused(server, 404, None, 'send the turns to /v1/chat/completions', {}, path=path)
        neutral = {'min_tokens': 0, 'stop_token_ids': [], 'skip_special_tokens': True, 'unheard_of': None,
                   'spaces_between_special_tokens': True, 'include_stop_str_in_output': False, 'length_penalty': 1.0,
                   'use_beam_search': False, 'stream_options': {'continuous_usage_stats': False, 'unheard_of': None},
                   'frequency_penalty': 0.0, 'presence_penalty': 0, 'logit_bias': {}, 'best_of': 1, 'suffix': None,
                   'user': 'me', 'n': None, 'response_format': {'type': 'text'}, 'metadata': {'a': 'b'}}
        assert server.complete(max_tokens=2, **neutral)
        assert server.complete(max_tokens=2, logprobs=False)['choices'][0]['logprobs'] is None
        refused(server, 400, 'logprobs', 'a whole number', {'logprobs': True})
        assert len(server.complete(max_tokens=2, n=3, best_of=3)['choices']) == 3
        refused(server, 400, 'best_of', 'give n, 2', {'n': 2, 'best_of': 4})
        assert server.complete(max_tokens=2, is_deterministic=True)['choices'][0]['deterministic']
        s = server.raw(b'GET /health HTTP/1.1\r\nHost: localhost\r\nA: ' + b'a' * 100000 + b'\r\n\r\n')
        assert s.recv(12) in (b'HTTP/1.1 431', b'HTTP/1.1 413', b'HTTP/1.1 414'), 'headers that are too long'
        assert server.get('/health') == {'status': 'ok'} and server.metric('vllm:num_requests_running') == 0
    with Server(B, '--model', 'synthetic:tiny', '--threads', '1') as server:  # it has no tokenizer
        refused(server, 400, 'prompt', 'give token ids', {})
        refused(server, 400, 'stop', 'no tokenizer', {'prompt': [0, 9], 'stop': 'x'})
        choice = server.complete([0, 9], max_tokens=3, return_token_ids=True, logprobs=1)['choices'][0]
        assert choice['text'] is None and len(choice['token_ids']) == 3
        assert choice['logprobs']['tokens'][0] == 'token_id:%d' % choice['token_ids'][0]


def part_key():
    with serve('--api-key', 'secret') as server:
        for key in (None, 'Bearer wrong', 'Bearer secre', 'Bearer secrets', 'secret', 'Bearer '):
            headers = refused(server, 401, None, 'API key', {}, headers={'Authorization': key} if key else {})
            assert headers['WWW-Authenticate'] == 'Bearer'
        refused(server, 401, None, 'API key', path='/v1/models')
        assert server.ask('/health')[0] == 200 and server.ask('/metrics')[0] == 200
        status, _, _ = server.ask('/v1/completions', {'prompt': 'It', 'max_tokens': 1},
                                  {'Authorization': 'Bearer secret'})
        assert status == 200


def part_queue():
    with serve('--max-running', '2', '--max-queue', '2') as server:
        busy = server.stream(prompt='It was', max_tokens=400 if SLOW else 2000, n=4, ignore_eos=True)
        next(busy)
        headers = refused(server, 429, None, 'room for 0 answers, not for 1: try again', {})
        assert int(headers['Retry-After']) >= 1
        refused(server, 429, None, 'room for 0', {'stream': True})
        assert server.metric('vllm:num_requests_running') == 2 and server.metric('vllm:num_requests_waiting') == 2
        assert {c['index'] for event in busy for c in event['choices']} == {0, 1, 2, 3}
        assert server.complete(n=4, max_tokens=2)
    with serve('--request-timeout', '1') as server:
        refused(server, 504, None, 'no answer within 1 s', dict(LONG))
        events = []
        try:
            events += server.stream(prompt='It was', **LONG)
        except KeyError:  # an error has no choices
            pass
        assert events[-1]['error']['code'] == 'timeout', events[-1]
        server.wait_for('vllm:num_requests_running', 0)
    with serve('--read-timeout', '1') as server:  # a request that does not come is not waited for
        for data in (b'', b'POST /v1/comp', post(b'{"prompt"', 100)):
            s, begin = server.raw(data), time.monotonic()
            assert s.recv(1000).startswith((b'', b'HTTP/1.1 408')) and time.monotonic() - begin < 5
        s, begin = server.raw(), time.monotonic()
        try:
            while time.monotonic() - begin < 10:  # nor one that comes byte by byte
                s.sendall(b'G')
                time.sleep(0.2)
            raise AssertionError('it waited for a trickle')
        except OSError:
            pass


def part_cancel():
    with serve() as server:
        events = server.stream(prompt='It was', **LONG)
        next(events)
        events.close()
        server.wait_for('llm42:clients_gone_total', 1)
        server.wait_for('vllm:num_requests_running', 0)
        s = server.raw(post({'prompt': 'It was', **LONG}))  # one that waits for a whole answer
        server.wait_for('vllm:num_requests_running', 32)
        s.close()
        server.wait_for('llm42:clients_gone_total', 2)
        s = server.raw(post({'prompt': 'It was', **LONG}))  # one that closes its side alone
        s.shutdown(socket.SHUT_WR)
        server.wait_for('llm42:clients_gone_total', 3)
        server.wait_for('vllm:num_requests_waiting', 0)
        assert s.recv(100) == b''
        assert server.complete(max_tokens=2)


def part_drain():
    fields = {'prompt': 'It was', 'max_tokens': 100 if SLOW else 500, 'n': 16, 'ignore_eos': True, 'seed': 3,
              'deterministic': True}
    with serve() as server:
        expected = whole(server.get('/v1/completions', **fields))
        events = server.stream(**fields)
        first = next(events)
        waits = server.raw(post(fields))
        server.wait_for('vllm:num_requests_running', 32)
        server.process.terminate()
        end = time.monotonic() + 10
        while server.ask('/health')[0] != 503:
            assert time.monotonic() < end
        headers = refused(server, 503, None, 'is being ended', {})
        assert headers['Retry-After'] and headers['Connection'].lower() == 'close'
        assert joined([first, *events]) == expected
        text = b''
        while part := waits.recv(1 << 20):
            text += part
        assert whole(json.loads(text.split(b'\r\n\r\n', 1)[1])) == expected
        assert server.process.wait(20) == 0


def part_record():
    with tempfile.TemporaryDirectory() as folder:
        path = folder + '/transcript.txt'
        with serve('--record', path) as server:
            together([lambda i=i: server.complete(PROMPTS[i % 6], max_tokens=20 + i, deterministic=i % 4 > 0, seed=i + 1,
                                                  stop=['the'] if i % 5 == 0 else None) for i in range(16)])
            events = server.stream(prompt='It was', **LONG, deterministic=True)
            next(events)
            events.close()
            server.wait_for('vllm:num_requests_running', 0)
            assert server.end() == 0
        def audit(path, status):
            done = subprocess.run([B + '/audit', path, '--model', 'examples/tiny42', '--skip-ordinary'],
                                  capture_output=True, text=True, check=False)
            assert done.returncode == status, done.stdout + done.stderr
        audit(path, 0)
        with open(path) as file:
            text = file.read()
        assert text.count('\nrequest: ') == 16 + 64 and text.endswith('# end\n')
        i = text.index('\ntokens: ', text.index('deterministic: yes\nfinish: length')) + 9  # the control: a token changed
        changed = folder + '/changed.txt'
        with open(changed, 'w') as file:
            file.write(text[:i] + str((int(text[i:].split(',')[0]) + 1) % 2048) + text[i + text[i:].index(','):])
        subprocess.run(['bash', '-c', 'source tests/check.sh; seal "$0"', changed], check=True)
        audit(changed, 1)
        # A disk that is full is said while the server goes on, and its status is not that of success.
        limited = subprocess.Popen(['bash', '-c', 'ulimit -f 8; exec "$@"', 'bash', B + '/serve', '--port', '0',
                                    '--threads', '1', '--record', folder + '/full.txt'],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with Server.of(limited) as server:
            for _ in range(4):
                assert server.complete(max_tokens=60 if SLOW else 200, n=4)
            assert 'full.txt: writing failed: the disk may be full: ' in limited.stderr.readline()
            assert server.complete(max_tokens=2) and server.end() == 1 and not os.path.exists(folder + '/full.txt')
        limited.stderr.close()


def part_slow():
    def slow_reader(asked):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(('127.0.0.1', server.port))
        s.sendall(post(asked))
        return s
    fields = {'prompt': 'It was', 'max_tokens': 200 if SLOW else 1000, 'n': 8, 'ignore_eos': True, 'seed': 3, 'logprobs': 5,
              'deterministic': True, 'stream': True}
    with serve('--read-timeout', '60') as server:
        expected = whole(server.get('/v1/completions', **{**fields, 'stream': False}))
        s = slow_reader(fields)
        begin = time.monotonic()
        server.wait_for('llm42:returned_tokens_total', 16 * fields['max_tokens'], 120)  # the engine goes on to the end
        server.wait_for('vllm:num_requests_running', 0)
        took = time.monotonic() - begin
        assert server.complete(max_tokens=5) and server.metric('llm42:clients_gone_total') == 0
        text = b''
        s.settimeout(60)
        while not text.endswith(b'\r\n0\r\n\r\n'):
            part = s.recv(1 << 16)
            assert part, (took, text[-100:])
            text += part
        body, rest = b'', text.split(b'\r\n\r\n', 1)[1]
        while rest:  # the chunks of HTTP
            size, rest = rest.split(b'\r\n', 1)
            body, rest = body + rest[:int(size, 16)], rest[int(size, 16) + 2:]
        lines = [line for line in body.decode().split('\n') if line.startswith('data: {')]
        assert joined([json.loads(line[6:]) for line in lines]) == expected
    with serve('--read-timeout', '1') as server:  # one that never reads is cut off, as nobody waits for it
        s = slow_reader({**fields, 'logprobs': 20, 'max_tokens': 2000})
        server.wait_for('vllm:num_requests_running', 8)
        server.wait_for('vllm:num_requests_running', 0, 300)  # minutes with sanitizers on a busy machine
        s.close()
        assert server.end() == 0


def beside(server, requests):
    """The answers to requests that are sent at the same time, and the seconds of the slowest /health beside them."""
    sockets, slowest, done = [server.raw(data) for data in requests], 0, []

    def read(s):
        response = http.client.HTTPResponse(s)
        response.begin()
        text = response.read()
        s.close()
        done.append(response.status)
        return text

    def watch():
        nonlocal slowest
        while len(done) < len(sockets):
            begin = time.monotonic()
            server.get('/health')
            slowest = max(slowest, time.monotonic() - begin)
            time.sleep(0.002)
    *got, _ = together([lambda s=s: read(s) for s in sockets] + [watch])
    return [json.loads(text) for text in got], slowest


def part_large():
    """Large answers and bodies hold up nobody, and take the memory that the limit counts."""
    ids, n = [5 + i % 2000 for i in range(1900)], 2 if SLOW else 8
    score = {'prompt': ids, 'max_tokens': 1, 'n': n, 'echo': True, 'return_token_ids': True}
    with serve('--max-body', str(1 << 21)) as server:
        expected = server.get('/v1/completions', **score)['choices'][0]  # pages of the KV cache are touched here
        counted, before, slowest = n * len(ids) * (36 + 8 * 20) / 1024, server.rss('VmHWM'), []
        for _ in range(3):  # one may meet a moment when the machine does something else
            (answer,), took = beside(server, [post({**score, 'logprobs': 20})])
            slowest.append(took)
        grown = server.rss('VmHWM') - before
        for choice in answer['choices']:
            logprobs = choice['logprobs']
            assert choice['text'].startswith(expected['text'][:5000]) and len(choice['token_ids']) == 1
            assert all(len(logprobs[key]) == 1901 for key in ('tokens', 'token_logprobs', 'top_logprobs', 'text_offset'))
        print('/health beside a large answer: %s ms at most; %.1f MiB for %.1f that are counted' % (
            [round(1e3 * s, 1) for s in slowest], grown / 1024, counted / 1024))
        assert SLOW or min(slowest) < 0.15, slowest  # on an idle machine 50 ms
        assert SLOW or grown < 1.5 * counted + 4096, (grown, counted)
        # Bodies of a megabyte.
        bodies = [post({'prompt': one * (1000000 // len(one))}) for one in ('It was ', [1, 2, 3], ['a', 'b'])]
        rng = random.Random(1)
        bodies.append(post({'prompt': ''.join(rng.choice('abcdefgh') for _ in range(1000000))}))
        bodies.append(post({'a': [[[]]] * 200000}))
        slowest = []
        for _ in range(3):
            got, took = beside(server, bodies)
            slowest.append(took)
            assert all('error' in answer for answer in got), got
        print('/health beside bodies of a megabyte: %s ms at most' % [round(1e3 * s, 1) for s in slowest])
        assert SLOW or min(slowest) < 0.15, slowest  # on an idle machine 50 ms


def bits(preset, deterministic, requests, *options):
    """How many of the requests, asked at the same time, have other ids or log-probabilities than alone."""
    how = [{'n': 24 + i, 'temperature': (i % 3) * 0.5, 'seed': i + 1} for i in range(requests)]
    with serve('--preset', preset, *options) as server:
        answers = together([lambda i=i: server.complete(
            PROMPTS[i % 6], max_tokens=how[i]['n'], temperature=how[i]['temperature'], seed=how[i]['seed'], logprobs=0,
            ignore_eos=True, deterministic=deterministic, return_token_ids=True) for i in range(requests)])
        if '--kv-tokens' in options:  # too few for all
            assert server.metric('vllm:num_preemptions_total') > 0
        if '--prefix-cache' in options:
            before = server.metric('vllm:prefix_cache_hits_total')
            for _ in range(2):
                server.complete(' '.join(PROMPTS), max_tokens=2)
            assert server.metric('vllm:prefix_cache_hits_total') - before == 16
    other = 0
    for i, answer in enumerate(answers):
        choice = answer['choices'][0]
        alone = generate(PROMPTS[i % 6], **how[i], ignore_eos=True, preset=preset, deterministic=deterministic)[0]
        other += (choice['token_ids'], choice['logprobs']['token_logprobs']) != (alone['ids'], alone['logprobs'])
    return other


def part_cache():
    requests = 8 if SLOW else 24
    assert bits('dvr', True, requests, '--kv-tokens', '64' if SLOW else '96', '--prefix-cache') == 0
    with serve('--kv-tokens', '50', '--prefix-cache') as server:
        assert server.get('/v1/models')['data'][0]['max_model_len'] == 65
        refused(server, 400, 'max_tokens', 'the context of 65 has room for 62', {'max_tokens': 63})
        refused(server, 400, 'max_tokens', 'the context of 65 has room for 62', {'max_tokens': 63, 'stream': True})
        refused(server, 400, 'prompt', '70 tokens', {'prompt': list(range(5, 75))})
        assert server.complete(max_tokens=62, ignore_eos=True)['usage']['completion_tokens'] == 62
        # What the cache has left out would have no log-probability.
        refused(server, 400, 'echo', 'a server with --prefix-cache', {'echo': True, 'logprobs': 1})
        assert server.complete('It was', echo=True, max_tokens=0)['choices'][0]['text'] == 'It was'


def part_bits():
    for preset in ('dvr',) if SLOW else ('dvr', 'best', 'invariant', 'paper'):
        assert bits(preset, True, 8 if SLOW else 48) == 0, preset
    if not SLOW:  # of few requests all may be right
        assert bits('dvr', False, 48) > 0, 'the control: ordinary requests have the bits that they have alone'


def chat_model(folder):
    """tiny42 without a chat template, but with the special tokens of two in the places of the last five, and a context
    of 256."""
    names = ['<|start_header_id|>', '<|end_header_id|>', '<|eot_id|>', '<|im_start|>', '<|im_end|>']
    without_template(folder)
    os.chmod(folder, 0o755)
    with open(folder + '/tokenizer.json', encoding='utf-8') as file:
        tokenizer = json.load(file)
    with open(folder + '/config.json', encoding='utf-8') as file:
        config = json.load(file)
    vocab = tokenizer['model']['vocab']
    gone = {word for word, i in vocab.items() if i >= 2043}
    tokenizer['model']['vocab'] = {word: i for word, i in vocab.items() if word not in gone}
    tokenizer['model']['vocab'].update({name: 2043 + i for i, name in enumerate(names)})
    pairs = [m if isinstance(m, list) else m.split(' ') for m in tokenizer['model']['merges']]
    tokenizer['model']['merges'] = [m for m in pairs if not gone & {m[0], m[1], m[0] + m[1]}]
    for i, name in enumerate(names):
        tokenizer['added_tokens'].append({'id': 2043 + i, 'content': name, 'special': True})
    for name, content in (('tokenizer', tokenizer), ('config', {**config, 'max_position_embeddings': 256}),
                          ('tokenizer_config', {'bos_token': '<|begin_of_text|>', 'eos_token': '<|end_of_text|>'})):
        path = '%s/%s.json' % (folder, name)
        if os.path.exists(path):
            os.remove(path)
        with open(path, 'w', encoding='utf-8') as file:
            json.dump(content, file)


def without_template(folder):
    shutil.copytree('examples/tiny42', folder, ignore=shutil.ignore_patterns('tokenizer_config.json'))
    return folder


def part_chat():
    path = '/v1/chat/completions'
    h, e, t = '<|start_header_id|>', '<|end_header_id|>\n\n', '<|eot_id|>'
    turns = [{'role': 'system', 'content': ' Be nice. '}, {'role': 'user', 'content': 'hi'},
             {'role': 'assistant', 'content': [{'type': 'text', 'text': 'Hel'}, {'type': 'text', 'text': 'lo'}]},
             {'role': 'user', 'content': 'Who is there?'}]
    how = {'max_tokens': 12, 'temperature': 0, 'deterministic': True, 'return_token_ids': True}
    with tempfile.TemporaryDirectory() as folder:
        chat_model(folder + '/model')
        for name, text in (
                ('llama3', ''.join(
                    h + role + e + said + t for role, said in (('system', 'Be nice.'), ('user', 'hi'),
                                                               ('assistant', 'Hello'), ('user', 'Who is there?')))
                 + h + 'assistant' + e),
                ('chatml-bos', ''.join(
                    '<|im_start|>%s\n%s<|im_end|>\n' % turn for turn in (
                        ('system', ' Be nice. '), ('user', 'hi'), ('assistant', 'Hello'), ('user', 'Who is there?')))
                 + '<|im_start|>assistant\n')):
            with serve('--model', folder + '/model', '--chat-format', name) as server:
                a = server.get(path, messages=turns, logprobs=True, top_logprobs=2, **how)
                b = server.complete(text, logprobs=2, **how)
                assert a['object'] == 'chat.completion' and a['usage'] == b['usage'], (a, b)
                choice = a['choices'][0]
                assert choice['token_ids'] == b['choices'][0]['token_ids']
                assert choice['message'] == {'role': 'assistant', 'content': b['choices'][0]['text']}
                tokens = choice['logprobs']['content']
                assert [t['logprob'] for t in tokens] == b['choices'][0]['logprobs']['token_logprobs']
                assert all(t['top_logprobs'][0] == {k: t[k] for k in ('token', 'logprob', 'bytes')} for t in tokens)
                assert all(len(t['top_logprobs']) == 2 and bytes(t['bytes']) for t in tokens)
                events = list(server.stream(path, messages=turns, logprobs=True, top_logprobs=2, **how))
                assert events[0]['choices'][0]['delta']['role'] == 'assistant'
                assert events[0]['object'] == 'chat.completion.chunk' and joined(events, True) == whole(a, True)
                for fields in ({}, {'max_tokens': 0}, {'stop': ['e']}):  # the end comes alone
                    events = list(server.stream(path, messages=turns, **{**how, **fields}))
                    deltas = [event['choices'][0] for event in events]
                    assert deltas[-1]['delta'] == {} and deltas[-1]['finish_reason'] in ('stop', 'length'), deltas
                    assert deltas[0]['delta']['role'] == 'assistant', deltas
                    assert all('content' in d['delta'] and d['finish_reason'] is None for d in deltas[:-1]), deltas
                said = dict(messages=[{**turns[0], 'name': 'x'}, {**turns[1], 'name': 'me'},
                                      {**turns[2], 'tool_calls': [], 'refusal': None, 'annotations': []}, turns[3]],
                            reasoning_effort='low', tools=[], tool_choice='auto', parallel_tool_calls=True,
                            response_format={'type': 'text'}, audio=None)
                assert whole(server.get(path, **said, **how), True) == whole(server.get(path, messages=turns, **how), True)
                for nothing in ({'top_logprobs': 0}, {'logprobs': False, 'top_logprobs': 0}, {'modalities': []}):
                    assert server.get(path, messages=turns, **how, **nothing)['choices'][0]['logprobs'] is None
                for nothing in ({'content': None}, {'content': None, 'tool_calls': []}, {}):
                    silent = [turns[1], {'role': 'assistant', **nothing}, turns[3]]
                    assert whole(server.get(path, messages=silent, **how), True) == whole(server.get(
                        path, messages=[turns[1], {'role': 'assistant', 'content': ''}, turns[3]], **how), True)
                one = server.get(path, messages=turns[1:2], max_completion_tokens=5, temperature=0, deterministic=True)
                alone = generate('hi', model=folder + '/model', chat=True, chat_format=name, n=5,
                                 deterministic=True)[0]
                assert one['choices'][0]['message']['content'] == alone['text']
                room = 256 - one['usage']['prompt_tokens']  # all that the context leaves, unless the request says
                most = server.get(path, messages=turns[1:2], temperature=0, ignore_eos=True)
                assert most['usage']['completion_tokens'] == room, most['usage']
                for param, fields, pattern in (
                        ('messages', {'messages': []}, 'at least one'),
                        ('messages', {'messages': turns[:1]}, "must be the user's"),
                        ('messages', {'messages': turns[2:]}, 'turn 0 is of the assistant'),
                        ('messages', {'messages': [{'role': 'tool', 'content': ''}]}, 'its role'),
                        ('messages', {'messages': [{'role': 'user'}]}, 'content of message 0'),
                        ('messages', {'messages': [{'role': 'user', 'content': 'hi', 'name': 5}]}, 'name of message 0'),
                        ('messages', {'messages': [{'role': 'user', 'content': 'hi', 'x': 5}]}, 'x: no such'),
                        ('messages', {'messages': [{'role': 'user', 'content': None}]}, 'content of message 0'),
                        ('messages', {'messages': [turns[1], {'role': 'assistant', 'content': None, 'tool_calls': [{}]}]},
                         'tool_calls: needs a server that was started with --chat-command'),
                        ('tool_choice', {'messages': turns, 'tool_choice': 'required'}, 'models call no tools here'),
                        ('reasoning_effort', {'messages': turns, 'reasoning_effort': 5}, 'must be a text'),
                        ('messages', {'messages': [{'role': 'user\0x', 'content': 'hi'}]}, 'its role'),
                        ('messages', {'messages': [{'role': 'user', 'content': [
                            {'type': 'text', 'text': 'hi', 'x': 1}]}]}, 'x: no such field'),
                        ('messages', {'messages': [{'role': 'user', 'content': [{'type': 'image_url'}]}]}, 'of type text'),
                        ('tools', {'messages': turns, 'tools': [{}]}, 'needs a server that was started with --chat-command: leave it out'),
                        ('top_logprobs', {'messages': turns, 'top_logprobs': 2}, 'needs'),
                        ('logprobs', {'messages': turns, 'logprobs': 2}, 'true or false'),
                        ('max_tokens', {'messages': turns, 'max_tokens': 1, 'max_completion_tokens': 1}, 'give it or')):
                    refused_chat(server, 400, param, pattern, fields)
        with serve('--model', folder + '/model', '--chat-format', 'qwen3') as server:  # where an effort would mean something
            refused_chat(server, 400, 'reasoning_effort', 'no levels of it', {'messages': turns[1:2], 'reasoning_effort': 'low'})
            refused_chat(server, 400, 'messages', "turn 0 (user), byte 2: the chat template treats '<tool_response>' specially",
                    {'messages': [{'role': 'user', 'content': 'x <tool_response>'}]})
        with serve('--model', folder + '/model', '--chat-format', 'mistral-0.2') as server:
            for some, text in ((turns[1:2], '[INST] hi [/INST]'),
                               (turns[1:], '[INST] hi [/INST]Hello<|end_of_text|>[INST] Who is there? [/INST]')):
                one = server.get(path, messages=some, **how)['choices'][0]
                assert one['token_ids'] == server.complete(text, **how)['choices'][0]['token_ids'], text
            refused_chat(server, 400, 'messages', "no system's", {'messages': turns[:2]})
    with serve() as server:  # tiny42 itself: the turns are one text, which it continues
        story = [{'role': 'system', 'content': 'It was'}, {'role': 'user', 'content': 'late,'},
                 {'role': 'assistant', 'content': ' and'}, {'role': 'user', 'content': 'he'}]
        for some, text in ((story[1:2], 'late,'), (story[:2], 'It was late,'), (story, 'It was late, and he')):
            a = server.get(path, messages=some, **how)['choices'][0]
            assert a['token_ids'] == server.complete(text, **how)['choices'][0]['token_ids'], (text, a)
        a = server.get(path, messages=[{'role': 'user', 'content': 'It was'}], temperature=0, max_tokens=5)
        assert a['choices'][0]['message']['content'] == ' a very fine day,', a
    with tempfile.TemporaryDirectory() as folder, serve('--model', without_template(folder + '/none')) as server:
        refused_chat(server, 400, 'messages', 'no chat_template in tokenizer_config.json', {'messages': turns[1:2]})


COMMAND = """
import json, sys, time
asked = json.load(sys.stdin)
said = asked['messages'][-1]['content']
if said == 'refuse':
    sys.exit(print('not these', file=sys.stderr) or 3)
if said == 'fail':
    sys.exit('no such template')
if said == 'hang':
    time.sleep(60)
if said == 'bytes':
    sys.stdout.buffer.write(b'a\\xff')
elif said == 'more':
    print('x' * 3000)
elif said != 'nothing':
    print('<|begin_of_text|>It was' + ''.join(' ' + m['role'] for m in asked['messages']) + str(asked.get('tools') or ''), end='')
"""


def part_command():
    """A program of the user's spells chats: its contract, its errors, and others are served meanwhile."""
    path = '/v1/chat/completions'
    how = {'max_tokens': 6, 'temperature': 0, 'deterministic': True, 'return_token_ids': True}
    chat = lambda said: {'messages': [{'role': 'user', 'content': said}]}
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + '/spell.py', 'w', encoding='utf-8') as file:
            file.write(COMMAND)
        spell = ('--chat-command', sys.executable + ' ' + folder + '/spell.py', '--chat-timeout', '2', '--max-body', '2000')
        with serve('--model', without_template(folder + '/none'), *spell) as server:
            turns = [{'role': 'user', 'content': 'x'}, {'role': 'tool', 'content': 'y', 'tool_call_id': '1'}]
            for fields, text in (({}, 'It was user tool'), ({'tools': [{'a': 1}]}, "It was user tool[{'a': 1}]")):
                a = server.get(path, messages=turns, **fields, **how)['choices'][0]
                assert a['token_ids'] == server.complete(text, **how)['choices'][0]['token_ids'], (text, a)
            for said, status, param, pattern in (
                    ('refuse', 400, 'messages', 'messages: not these'), ('fail', 500, None, 'status 1: no such template'),
                    ('bytes', 500, None, 'no UTF-8'), ('nothing', 500, None, 'printed nothing'),
                    ('more', 500, None, '--chat-command: printed more than 2000 bytes, ')):
                refused_chat(server, status, param, pattern, chat(said))
            begin = time.monotonic()
            slow, quick = together([lambda: server.ask(path, chat('hang')),
                                    lambda: (time.sleep(0.3), server.complete(max_tokens=2), time.monotonic())[2]])
            assert slow[0] == 500 and '--chat-command: not finished within 2 s: ' in slow[2] and quick - begin < 1.8, (slow, quick - begin)
            assert time.monotonic() - begin < 6
        with serve('--chat-command', 'exit 0', '--chat-timeout', '5') as server:  # it does not read what it is given
            refused_chat(server, 500, None, 'printed nothing', chat('x' * 100000))
        for arguments, said, status, pattern in (
                (['--help'], '', 0, 'Standard input must be the request'), (['x'], '', 1, 'standard input is no JSON'),
                (['x'], '[]', 1, 'no list of `messages`'), ([], '', 1, 'give one FOLDER')):
            ran = subprocess.run([sys.executable, 'examples/python/llm42_chat.py', *arguments], input=said,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding='utf-8')
            assert ran.returncode == status and pattern in ran.stdout and 'usage: ' in ran.stdout, ran
        try:
            import jinja2
        except ImportError:
            return
        assert jinja2
        render = '%s examples/python/llm42_chat.py examples/tiny42' % sys.executable
        with serve('--chat-command', render) as server, serve() as known:
            assert whole(server.get(path, messages=turns[:1], **how), True) == whole(known.get(path, messages=turns[:1], **how), True)


def part_fuzz():
    with serve('--read-timeout', '2', '--max-queue', '64') as server:
        counts = hostile.run(server, 4 if SLOW else 8)
        assert counts['answered'] > 0 and counts['attacks'] > 20, counts
        server.wait_for('vllm:num_requests_running', 0)
        server.wait_for('vllm:num_requests_waiting', 0)
        sockets = [server.raw() for _ in range(240)]  # many connections: others are still answered
        assert server.complete(max_tokens=2)
        for s in sockets:
            s.close()
        assert server.end() == 0


PARTS = {name[5:]: function for name, function in sorted(globals().items()) if name.startswith('part_')}

if __name__ == '__main__':
    if sys.argv[1:] == ['--list']:
        print(*PARTS)
    for argument in sys.argv[1:]:
        if argument != '--list':
            PARTS[argument]()
