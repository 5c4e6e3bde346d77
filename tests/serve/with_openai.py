#!/usr/bin/env python3
"""The package openai asks build/serve: whole answers, streams, logprobs, errors. From the environment: B."""
import os
import sys
import tempfile

import openai

from client import Server
from parts import chat_model

B = os.environ.get('B', 'build')


def main():
    with tempfile.TemporaryDirectory() as folder:
        chat_model(folder + '/model')
        with Server(B, '--model', folder + '/model', '--chat-format', 'llama3', '--threads', '1', '--api-key', 'secret') as server:
            url = 'http://127.0.0.1:%d/v1' % server.port
            client = openai.OpenAI(base_url=url, api_key='secret', max_retries=0)
            assert [m.id for m in client.models.list()] == ['model'] and client.models.retrieve('model').id == 'model'
            how = {'model': 'model', 'max_tokens': 20, 'seed': 5, 'extra_body': {'deterministic': True}}
            a = client.completions.create(prompt='It was', logprobs=2, n=2, **how)
            assert len(a.choices) == 2 and a.usage.completion_tokens == 40 and a.choices[0].seed == 5 != a.choices[1].seed
            assert len(a.choices[0].logprobs.token_logprobs) == 20
            text = ''.join(c.choices[0].text for c in client.completions.create(prompt='It was', stream=True, **how))
            assert text == a.choices[0].text, (text, a)
            turns = [{'role': 'system', 'content': 'Be nice.'}, {'role': 'user', 'content': 'Hello'}]
            a = client.chat.completions.create(messages=turns, logprobs=True, top_logprobs=2, **how)
            assert a.choices[0].message.role == 'assistant' and len(a.choices[0].logprobs.content[0].top_logprobs) == 2
            stream = client.chat.completions.create(messages=turns, stream=True, stream_options={'include_usage': True},
                                                    **how)
            chunks = list(stream)
            assert chunks[-2].choices[0].finish_reason == 'length' and chunks[-2].choices[0].delta.content is None
            assert ''.join(c.choices[0].delta.content or '' for c in chunks[:-1]) == a.choices[0].message.content
            assert chunks[-1].usage.total_tokens == a.usage.total_tokens
            for error, code, fields in ((openai.BadRequestError, 'invalid_value', {'temperature': -1.0}),
                                        (openai.NotFoundError, 'model_not_found', {'model': 'other'})):
                try:
                    client.completions.create(**{'prompt': 'It was', **how, **fields})
                    raise AssertionError(code)
                except error as said:
                    assert said.code == code, said
            try:
                openai.OpenAI(base_url=url, api_key='wrong', max_retries=0).models.list()
                raise AssertionError('a wrong key')
            except openai.AuthenticationError as said:
                assert said.code == 'invalid_api_key', said
    print('openai %s' % openai.__version__)


if __name__ == '__main__':
    sys.exit(main())
