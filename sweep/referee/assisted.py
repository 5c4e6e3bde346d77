#!/usr/bin/env python3
"""A server for the referee around the assisted generation of transformers, in which a small model drafts tokens.

    pip install transformers torch
    python3 sweep/referee/assisted.py --model examples/tiny42 --draft DIR --port 8001

A completion may say `drafts`: how many tokens are drafted at once, and 0 for none (default: --drafts). Requests run one
after the other. Ask at temperature 0, because with drafts transformers draws more numbers than without, so a
seed draws another answer of the same probability. /metrics counts drafts as vLLM does.
"""
import argparse
import http.server
import json
import threading

import torch
import transformers
from transformers.generation import candidate_generator

parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
parser.add_argument('--model', required=True)
parser.add_argument('--draft', required=True)
parser.add_argument('--drafts', type=int, default=4)
parser.add_argument('--dtype', choices=('float32', 'bfloat16'), default='float32')
parser.add_argument('--device', choices=('cpu', 'cuda'), default='cpu')
parser.add_argument('--port', type=int, default=8001)
parser.add_argument('--threads', type=int, default=1)
options = parser.parse_args()
torch.set_num_threads(options.threads)
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=options.model + '/tokenizer.json')
dtype = getattr(torch, options.dtype)
model, draft = [transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(options.device)
                for folder in (options.model, options.draft)]
lock, counts = threading.Lock(), [0, 0]
generator = candidate_generator.AssistedCandidateGenerator
propose, judge = generator.get_candidates, generator.update_candidate_strategy


def get_candidates(self, input_ids, *rest, **named):
    found = propose(self, input_ids, *rest, **named)
    counts[0] += found[0].shape[1] - input_ids.shape[1]
    return found


def update_candidate_strategy(self, input_ids, scores, num_matches, *rest, **named):
    counts[1] += int(num_matches)
    return judge(self, input_ids, scores, num_matches, *rest, **named)


generator.get_candidates, generator.update_candidate_strategy = get_candidates, update_candidate_strategy


def complete(body):
    width = body.get('drafts', options.drafts)
    draft.generation_config.num_assistant_tokens = width
    draft.generation_config.num_assistant_tokens_schedule = 'constant'
    draft.generation_config.assistant_confidence_threshold = 0
    torch.manual_seed(body.get('seed', 42))
    sampling = {'do_sample': True, 'temperature': body['temperature']} if body['temperature'] else {'do_sample': False}
    prompt = tokenizer(body['prompt'], return_tensors='pt').input_ids.to(options.device)
    # generate(stop_strings=...) fails with an assistant, which gets the strings without the tokenizer.
    stops = [transformers.StopStringCriteria(tokenizer, [body['stop']])] if body.get('stop') else []
    with torch.no_grad():
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), pad_token_id=0, **sampling,
                             max_new_tokens=body['max_tokens'], assistant_model=draft if width else None,
                             return_dict_in_generate=True, output_logits=True,
                             stopping_criteria=transformers.StoppingCriteriaList(stops))
    tokens = out.sequences[0, prompt.shape[1]:].tolist()
    logprobs = [float(torch.log_softmax(row[0].float(), -1)[token]) for row, token in zip(out.logits, tokens)]
    text = tokenizer.decode(tokens, skip_special_tokens=True)  # with the stop string, as generate returns it
    ended = bool(body.get('stop')) and len(tokens) < body['max_tokens'] or tokens[-1] == model.config.eos_token_id
    words = [tokenizer.decode([token]) for token in tokens]
    return {'choices': [{'index': 0, 'text': text, 'token_ids': tokens, 'finish_reason': 'stop' if ended else 'length',
                         'logprobs': {'tokens': words, 'token_logprobs': logprobs}}]}


class Handler(http.server.BaseHTTPRequestHandler):
    def send(self, status, text):
        self.send_response(status)
        self.send_header('Content-Length', str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        if self.path == '/metrics':
            names = ('draft', 'accepted')
            return self.send(200, ''.join('vllm:spec_decode_num_%s_tokens_total %d\n' % p for p in zip(names, counts)))
        return self.send(200, json.dumps({'data': [{'id': options.model.rstrip('/').split('/')[-1]}]}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        with lock:
            answer = complete(body)
        return self.send(200, json.dumps(answer))

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(('127.0.0.1', options.port), Handler)
print('http://127.0.0.1:%d/v1' % server.server_address[1], flush=True)
server.serve_forever()
