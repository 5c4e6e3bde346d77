#!/usr/bin/env python3
"""lm-evaluation-harness scores a small task of its own by build/serve, twice, beside other clients: the score and every
log-probability have the same bits. Nothing is downloaded. From the environment: B.

As a control it also asks ordinary requests: that they may differ is reported, and not tested, since it is a matter of
chance with so few.
"""
import json
import os
import sys
import tempfile
import threading

os.environ.update(HF_HUB_OFFLINE='1', HF_DATASETS_OFFLINE='1', TRANSFORMERS_OFFLINE='1', TOKENIZERS_PARALLELISM='false')

import lm_eval
from lm_eval.tasks import TaskManager

from client import Server

B = os.environ.get('B', 'build')
TASK = """task: llm42_words
dataset_path: json
dataset_kwargs: {data_files: {test: "%s"}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{text}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
STARTS = ['It was the best of', 'Once upon a', 'He went on', 'The landlord of the', 'I had no', 'She looked at',
          'In the middle of the', 'There was a very']
WORDS = [[' times', ' time', ' table'], [' time', ' hill', ' of'], [' his', ' to', ' the'], [' inn', ' house', ' it'],
         [' doubt', ' idea', ' him'], [' him', ' the', ' her'], [' night', ' day', ' room'], [' good', ' old', ' fine']]


def score(server, folder):
    """(results, log-probabilities of all choices), while other clients keep the engine busy."""
    stop = threading.Event()

    def load(number):
        while not stop.is_set():
            server.complete('It was', max_tokens=40 + number, n=3, ignore_eos=True)
    others = [threading.Thread(target=load, args=(i,)) for i in range(4)]
    for t in others:
        t.start()
    try:
        result = lm_eval.simple_evaluate(
            model='local-completions', tasks=['llm42_words'], task_manager=TaskManager(include_path=folder),
            model_args={'model': 'tiny42', 'base_url': 'http://127.0.0.1:%d/v1/completions' % server.port,
                        'tokenizer': folder + '/tokenizer', 'tokenizer_backend': 'huggingface', 'num_concurrent': 4,
                        'max_length': 2048, 'seed': 42, 'header': {}},
            bootstrap_iters=0, verbosity='ERROR')
    finally:
        stop.set()
        for t in others:
            t.join()
    samples = sorted(result['samples']['llm42_words'], key=lambda s: s['doc_id'])
    return result['results']['llm42_words'], [s['filtered_resps'] for s in samples]


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + '/data.jsonl', 'w') as file:
            for i in range(48):
                file.write(json.dumps({'text': 'Chapter %d. ' % i + STARTS[i % 8], 'choices': WORDS[i % 8],
                                       'answer': i // 8 % 3}) + '\n')
        with open(folder + '/words.yaml', 'w') as file:
            file.write(TASK % (folder + '/data.jsonl'))
        os.mkdir(folder + '/tokenizer')
        os.symlink(os.path.abspath('examples/tiny42/tokenizer.json'), folder + '/tokenizer/tokenizer.json')
        with open(folder + '/tokenizer/tokenizer_config.json', 'w') as file:
            json.dump({'tokenizer_class': 'PreTrainedTokenizerFast', 'bos_token': '<|begin_of_text|>',
                       'eos_token': '<|end_of_text|>'}, file)
        with Server(B, '--threads', '1', '--deterministic') as server:
            first, second = score(server, folder), score(server, folder)
        with Server(B, '--threads', '1') as server:
            other = score(server, folder)
    assert len(first[1]) == 48 and first == second, (first, second)
    differ = sum(a != b for a, b in zip(first[1], other[1]))
    print('lm_eval %s: acc %s, acc_norm %s, twice the same to the bit; of 48 questions %d differ without --deterministic'
          % (lm_eval.__version__, first[0]['acc,none'], first[0]['acc_norm,none'], differ))


if __name__ == '__main__':
    sys.exit(main())
