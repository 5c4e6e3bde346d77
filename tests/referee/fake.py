#!/usr/bin/env python3
"""A server for the tests of the referee, which has OpenAI's form and no model: an answer is a hash of the question.

    fake.py FAULT [NUMBER]

It prints its URL, and then has one fault:
  none            every answer is the same, marked or not
  token K         the K-th answer has another token at position 5
  logprob K       the K-th answer has a log-probability with another last bit at position 3
  control         answers to requests with "deterministic": false differ from each other, at position 7
  constant        all questions have the same answer
  key             wants the API key `secret`
  plain           refuses `logprobs` and `return_token_ids`
  strict          refuses `deterministic`
  status CODE     answers every request for a completion with this status
  later CODE      the same, behind the first 10 answers
  slow            each answer takes half a second
  garbage         answers are no JSON
  deep            behind the first 10 answers, each is JSON that is nested too deeply to be read
  long            behind the first 10 answers, log-probabilities have 400 digits
  list            behind the first 10 answers, texts are lists
  fewer           behind the first 10 answers, log-probabilities are missing
  drip            behind the first 10 answers, headers come one by one and do not end
  seeds           answer i of n is drawn with seed + 1000 i, and says so; control as above
These speculate, except for requests with "drafts": 0, and most count drafts; control as above:
  lossless        no fault
  leak            in every third answer with drafts a wrong one stays, at position 6
  eos             an end token is ignored where it is a draft
  stop            a stop string is found only in the last word of a draft of four
  width           drafts of 3 tokens change position 4
  probabilities   log-probabilities of drafts are those of the draft model
  behind          a prompt of more than 40 words gets another answer behind wrong drafts
  idle, right, uncounted  it drafts nothing, only right tokens, or does not count
"""
import hashlib
import http.server
import itertools
import json
import sys
import time

FAULT, NUMBER = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
CALLS = itertools.count(1)
LOSSLESS = 'lossless leak eos stop width probabilities behind idle right uncounted'.split()
COUNTS = {'idle': (0, 0), 'right': (4, 4)}.get(FAULT, (4, 3))  # drafts of a request, and those that are right
drafted = 0  # requests with drafts
WORDS = 'one two three four five six seven eight'.split()


def speculate(body, tokens, logprobs, digest):
    global drafted
    width = body.get('drafts', 4)
    drafted += width > 0
    if FAULT == 'leak' and width and drafted % 3 == 0:
        tokens[6:7] = [(t + 1) % 8 for t in tokens[6:7]]
    if FAULT == 'width' and width == 3 or FAULT == 'behind' and width and len(body['prompt'].split()) > 40:
        tokens[4:5] = [(t + 1) % 8 for t in tokens[4:5]]
    if FAULT == 'probabilities' and width:
        logprobs[1::2] = [p - 0.01 for p in logprobs[1::2]]
    if digest[31] % 3 == 0 and not (FAULT == 'eos' and width):
        del tokens[6:], logprobs[6:]


def choice(body, call, index):
    step = 1000 if FAULT == 'seeds' else 1
    seed = body['seed'] + step * index if body['temperature'] else 0
    asked = [body.get('prompt', body.get('messages')), body['temperature'], seed]
    key = '' if FAULT == 'constant' else json.dumps(asked)
    digest = hashlib.sha256(key.encode()).digest()
    tokens = [digest[i % 32] % 8 for i in range(body['max_tokens'])]
    logprobs = [-0.1 * (1 + b) for b in tokens]
    if FAULT == 'token' and call == NUMBER:
        tokens[5] = (tokens[5] + 1) % 8
    if FAULT == 'logprob' and call == NUMBER:
        logprobs[3] *= 1 + 2**-52
    if FAULT in LOSSLESS:
        speculate(body, tokens, logprobs, digest)
    if FAULT in ('control', 'seeds', *LOSSLESS) and body.get('deterministic') is False and body.get('drafts') != 0:
        tokens[7:8] = [call % 8]
    ended = len(tokens) < body['max_tokens']
    answer = {'index': index, 'text': ''.join(' ' + WORDS[t] for t in tokens), 'logprobs': None}
    answer['finish_reason'] = 'stop' if ended else 'length'
    if 'stop' in body:
        at = answer['text'].find(body['stop'])
        late = at >= 0 and FAULT == 'stop' and body.get('drafts') != 0 and answer['text'][:at].count(' ') % 4
        answer['text'] = answer['text'][:at if at >= 0 and not late else None]
        del tokens[answer['text'].count(' '):]
    if FAULT != 'plain':
        answer['seed'] = body['seed'] + step * index
    if 'messages' in body:
        answer['message'] = {'content': answer.pop('text')}
        answer['logprobs'] = {'content': [{'token': WORDS[t], 'logprob': p} for t, p in zip(tokens, logprobs)]}
    elif FAULT != 'plain':
        answer['token_ids'] = tokens
        answer['logprobs'] = {'tokens': [WORDS[t] for t in tokens], 'token_logprobs': logprobs}
    if call > 10 and FAULT == 'long':
        answer['logprobs']['token_logprobs'] = [10**400]
    if call > 10 and FAULT == 'list':
        answer['text'] = [answer['text']]
    if call > 10 and FAULT == 'fewer':
        del answer['logprobs']['token_logprobs']
    return answer


class Handler(http.server.BaseHTTPRequestHandler):
    def send(self, status, body):
        text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        if FAULT == 'key' and self.headers['Authorization'] != 'Bearer secret':
            return self.send(401, {'error': {'message': 'who are you?'}})
        if self.path == '/metrics' and FAULT in LOSSLESS and FAULT != 'uncounted':
            return self.send(200, ''.join('vllm:spec_decode_num_%s_tokens_total{model="fake"} %d.0\n' % (n, c * drafted)
                                          for n, c in zip(('draft', 'accepted'), COUNTS)))
        return self.send(200, {'data': [{'id': 'fake'}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        call = next(CALLS)
        for refused in {'plain': ('logprobs', 'return_token_ids'), 'strict': ('deterministic',)}.get(FAULT, ()):
            if refused in body:
                return self.send(400, {'error': {'message': refused + ': no such field'}})
        if FAULT == 'status' or (FAULT == 'later' and call > 10):
            return self.send(NUMBER, {'error': {'message': 'the fake is ill'}})
        if FAULT == 'slow':
            time.sleep(0.5)
        if FAULT == 'drip' and call > 10:
            self.send_response(200)
            for i in range(50):
                time.sleep(0.2)
                self.send_header('X-%d' % i, 'drip')
                self.flush_headers()
            return None
        if FAULT == 'deep' and call > 10:
            return self.send(200, '[' * 100000)
        if FAULT == 'garbage':
            return self.send(200, 'garbage')
        return self.send(200, {'choices': [choice(body, call, i) for i in range(body.get('n', 1))]})

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
print('http://127.0.0.1:%d/v1' % server.server_address[1], flush=True)
server.serve_forever()
