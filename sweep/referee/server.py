"""Asks a server that speaks OpenAI's API, and takes its answers apart. Python's standard library alone."""
import collections
import contextlib
import http.client
import json
import re
import socket
import struct
import threading
import time
import urllib.parse

MOST_BYTES = 1 << 24  # of one answer
WAITS = (0.5, 1, 2, 4, None)  # seconds before a request that a full server turned away is sent again; None: not again

# text: str. tokens: tuple of ids, or of spellings where the server gives no ids; or None. logprobs: tuple of floats, or
# None. seed: what the server says that it drew with, or None. finish: why the answer ended, or None.
Answer = collections.namedtuple('Answer', 'text tokens logprobs seed finish', defaults=(None,))
DRAFTS = ('vllm:spec_decode_num_draft_tokens_total', 'vllm:spec_decode_num_accepted_tokens_total')


class Trouble(Exception):
    """The server cannot be asked, or does not answer in OpenAI's form. The message says what to do."""


class Refused(Trouble):  # by an error of the server
    def __init__(self, status, message):
        super().__init__('status %d: %s' % (status, message))
        self.status = status


class Server:
    def __init__(self, url, key=None, timeout=120):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ('http', 'https') or not parts.hostname:
            raise ValueError("--url: '%s' is no URL such as http://127.0.0.1:8000/v1" % url)
        self.url, self.timeout, self.end = url, timeout, float('inf')  # end: when all answers must be there
        self.kind = http.client.HTTPSConnection if parts.scheme == 'https' else http.client.HTTPConnection
        self.host, self.port, self.path = parts.hostname, parts.port, parts.path.rstrip('/') or '/v1'
        self.headers = {'Content-Type': 'application/json', **({'Authorization': 'Bearer ' + key} if key else {})}

    def once(self, path, body, leave):
        """(status, text). After `leave` seconds, if given, the client goes away without its answer: status 0."""
        connection = self.kind(self.host, self.port, timeout=leave or self.timeout)
        end, late = min(time.monotonic() + self.timeout, self.end), None
        try:
            connection.connect()
            late = threading.Timer(max(0, end - time.monotonic()), hang_up, [connection.sock])
            late.daemon = True
            late.start()
            connection.request('GET' if body is None else 'POST', path,
                               None if body is None else json.dumps(body).encode(), self.headers)
            response = connection.getresponse()
            text = bytearray()
            while len(text) <= MOST_BYTES and time.monotonic() < end:
                part = response.read1(1 << 16)
                if not part and time.monotonic() < end:
                    return response.status, text.decode('utf-8', 'replace')
                text += part
            raise Trouble('%s: an answer has more than %d MiB, or took more than %d s' %
                          (self.url, MOST_BYTES >> 20, self.timeout))
        except (OSError, http.client.HTTPException) as error:
            if leave and isinstance(error, socket.timeout):
                return 0, ''
            if isinstance(error, socket.timeout) or time.monotonic() >= end:
                raise Trouble('%s: no answer within %d s: ask for fewer --tokens, or set --timeout or --limit' %
                              (self.url, self.timeout)) from None
            raise Trouble('%s does not answer (%s): is the server up, and is this URL right?' %
                          (self.url, error or type(error).__name__)) from None
        finally:
            if late:
                late.cancel()
            connection.close()

    def get(self, path, body=None, leave=None):
        """The answer as JSON, or None if the client went away."""
        for wait in WAITS:
            status, text = self.once(self.path + path, body, leave)
            if status not in (429, 503) or wait is None or leave:
                break
            time.sleep(wait)
        if leave and status != 200:
            return None
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if status != 200:
            raise Refused(status, error_of(answer) or text.strip()[:300] or 'without a message')
        if not isinstance(answer, dict):
            raise Trouble('%s%s: the answer is no JSON object: %s' % (self.url, path, text[:100]))
        return answer

    def models(self):
        """The names of its models; empty if it does not tell."""
        try:
            return [str(m['id']) for m in self.get('/models')['data']]
        except (Refused, KeyError, TypeError) as error:
            if getattr(error, 'status', 0) in (401, 403):
                raise Trouble('%s wants another --api-key: %s' % (self.url, error)) from None
            return []


    def drafts(self):
        """How many drafts it has judged so far, and how many were right, as vLLM counts them. None: not counted."""
        with contextlib.suppress(Trouble):
            status, text = self.once('/metrics', None, None)
            found = [re.findall(r'^%s(?:\{.*\})? (\S+)$' % name, text, re.M) for name in DRAFTS]
            if status == 200 and all(found):
                return tuple(int(sum(map(float, values))) for values in found)
        return None


def drafts_of(body):
    """The same of one answer, as llama.cpp's server says them; None: it does not."""
    timings = body.get('timings')
    return (timings.get('draft_n', 0), timings.get('draft_n_accepted', 0)) if isinstance(timings, dict) else None


def hang_up(sock):
    """Ends what another thread waits for: a server that sends a byte now and then is never silent for long."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:  # it is closed
        pass


def error_of(answer):
    """The message of an error, in the form of OpenAI or of FastAPI."""
    error = answer.get('error', answer.get('detail', answer.get('message'))) if isinstance(answer, dict) else None
    error = error.get('message', error) if isinstance(error, dict) else error
    return error if isinstance(error, str) else json.dumps(error) if error else None


def answers_of(body):
    """The answers in the body of a completion or a chat completion, in the order of their indices."""
    try:
        if not body['choices']:
            raise ValueError('no choices')
        return [answer_of(c) for c in sorted(body['choices'], key=lambda c: c.get('index', 0))]
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise Trouble('an answer is not in the form of OpenAI (%s: %s): %s' %
                      (type(error).__name__, error, json.dumps(body)[:200])) from None


def answer_of(choice):
    text = choice['message']['content'] if 'message' in choice else choice['text']
    given = choice.get('logprobs') or {}
    if given.get('content'):  # the form of chats, which some servers use for completions, too
        tokens = [e.get('id', e.get('token')) for e in given['content']]
        values = [e['logprob'] for e in given['content']]
    else:
        tokens, values = given.get('tokens'), given.get('token_logprobs')
    tokens = choice.get('token_ids') or tokens
    logprobs = tuple(float('nan') if v is None else float(v) for v in values) if values else None
    seed = choice.get('seed')
    if not isinstance(text, (str, type(None))) or not all(isinstance(t, (int, str)) for t in tokens or ()):
        raise TypeError('a text or a token is neither a string nor a number')
    return Answer(text or '', tuple(tokens) if tokens else None, logprobs, seed if isinstance(seed, int) else None,
                  choice.get('finish_reason'))


def bits(values):
    """The bits of floats, so that NaN equals itself and 0 is not -0."""
    return None if values is None else struct.pack('<%dd' % len(values), *values)
