"""A client of build/serve for its tests: Python's standard library alone, and the loopback range alone."""
import http.client
import json
import socket
import subprocess
import threading
import time


class Server:
    """build/serve on a free port, until it is ended."""

    def __init__(self, build, *options, env=None):
        self.begin(subprocess.Popen([build + '/serve', '--port', '0', *options], stdout=subprocess.PIPE, text=True,
                                    env=env))

    @classmethod
    def of(cls, process):
        """A server that somebody else has started."""
        server = cls.__new__(cls)
        server.begin(process)
        return server

    def begin(self, process):
        self.process = process
        line = self.process.stdout.readline()
        assert '/v1 serves ' in line, line
        self.port = int(line.split('/v1 ')[0].rsplit(':', 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def end(self, seconds=60):
        """Ends it by SIGTERM and returns its exit status."""
        self.process.terminate()
        return self.process.wait(seconds)

    def rss(self, name='VmRSS'):
        """Its memory in KiB; VmHWM: the most that it has had."""
        with open('/proc/%d/status' % self.process.pid) as status:
            return next(int(line.split()[1]) for line in status if line.startswith(name + ':'))

    def connect(self, timeout=120):
        return http.client.HTTPConnection('127.0.0.1', self.port, timeout=timeout)

    def ask(self, path, body=None, headers=None, method=None):
        """(status, headers, text). A body that is neither None nor bytes is sent as JSON."""
        connection = self.connect()
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection.request(method or ('GET' if body is None else 'POST'), path, body,
                           {'Content-Type': 'application/json', **(headers or {})})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, response.headers, text

    def get(self, path, **fields):
        """The answer to a request, which must succeed."""
        status, _, text = self.ask(path, fields or None)
        assert status == 200, (status, text)
        return json.loads(text)

    def complete(self, prompt='It was', **fields):
        return self.get('/v1/completions', prompt=prompt, **fields)

    def stream(self, path='/v1/completions', **fields):
        """The events of a stream, as they come."""
        connection = self.connect()
        connection.request('POST', path, json.dumps({'stream': True, **fields}), {'Content-Type': 'application/json'})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        last = None
        for line in response:
            if line.startswith(b'data: '):
                last = line[6:].strip()
                if last != b'[DONE]':
                    yield json.loads(last)
        assert last == b'[DONE]', last
        connection.close()

    def raw(self, data=b''):
        """A socket on which `data` was sent."""
        s = socket.create_connection(('127.0.0.1', self.port), timeout=60)
        s.sendall(data)
        return s

    def metric(self, name):
        for line in self.ask('/metrics')[2].splitlines():
            if line.startswith(name + ' '):
                return float(line.rsplit(' ', 1)[1])
        raise KeyError(name)

    def wait_for(self, name, value, seconds=30):
        end = time.monotonic() + seconds
        while self.metric(name) != value:
            assert time.monotonic() < end, (name, self.metric(name), value)
            time.sleep(0.02)


def post(body, length=None):
    """A request for completions as bytes."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return (b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n'
            % (len(body) if length is None else length)) + body


def joined(events, chat=False):
    """The choices that the events of a stream add up to, by index, as (text, logprobs, ids, finish, seed)."""
    choices = {}
    for event in events:
        for choice in event['choices']:
            c = choices.setdefault(choice['index'], {'text': '', 'logprobs': [], 'token_ids': []})
            c['text'] += (choice['delta'] if chat else choice).get('content' if chat else 'text') or ''
            c['token_ids'] += choice.get('token_ids', [])
            if choice['logprobs']:
                c['logprobs'] += choice['logprobs']['content'] if chat else list(zip(
                    choice['logprobs']['tokens'], choice['logprobs']['token_logprobs'],
                    choice['logprobs']['top_logprobs'], choice['logprobs']['text_offset']))
            for key in ('finish_reason', 'seed'):
                if choice.get(key) is not None:
                    c[key] = choice[key]
    return [choices[i] for i in sorted(choices)]


def whole(answer, chat=False):
    """The choices of an answer that came at once, in the form of joined()."""
    choices = []
    for choice in answer['choices']:
        logprobs = choice['logprobs']
        if logprobs:
            logprobs = logprobs['content'] if chat else list(zip(
                logprobs['tokens'], logprobs['token_logprobs'], logprobs['top_logprobs'], logprobs['text_offset']))
        choices.append({'text': choice['message']['content'] if chat else choice['text'], 'logprobs': logprobs or [],
                        'token_ids': choice.get('token_ids', []), 'finish_reason': choice['finish_reason'],
                        'seed': choice['seed']})
    return choices


def together(functions):
    """What the functions return, called at the same time."""
    results = [None] * len(functions)

    def call(i):
        try:
            results[i] = functions[i]()
        except Exception as error:  # the caller looks
            results[i] = error
    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(functions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results
