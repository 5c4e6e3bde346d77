"""Does an engine give the canonical answers of tiny42, however many rows of one answer a pass has (1 to 16)?

    make shared && python3 examples/python/conformance.py [FILE [ROWS...]]

To test another engine, replace `run`. The first lines of FILE describe its columns. Status 1: some answer differs.
"""
import struct
import sys


def run(prompts, count, arithmetic, rows):
    """(tokens, log-probabilities) for each prompt: `count` greedy tokens, of which a pass computes up to `rows`."""
    import llm42  # pylint: disable=import-outside-toplevel
    shape = {"preset": "dvr", "window": rows} if rows > 1 else {"preset": "invariant"}
    with llm42.Engine("examples/tiny42", arithmetic=arithmetic, **shape) as engine:
        answers = engine.generate(prompts, deterministic=True, max_new_tokens=count)
        return [(answer.tokens.tolist(), answer.logprobs.tolist()) for answer in answers]


name, *rows_of = sys.argv[1:] or ["examples/tiny42/vectors.tsv"]
head, *lines = [line.rstrip("\n").split("\t") for line in open(name, encoding="ascii") if line[0] != "#"]
column = {title: [line[i].split() for line in lines] for i, title in enumerate(head)}
ids, wrong = [list(map(int, prompt)) for prompt in column["prompt"]], 0
for kind in ("fp32", "sm90"):
    for n in map(int, rows_of or range(1, 17)):
        found = run(ids, len(column[kind + "_tokens"][0]), kind, n)
        tokens = sum(list(map(str, t)) == want for (t, _), want in zip(found, column[kind + "_tokens"]))
        bits = sum([struct.pack(">f", x).hex() for x in p] == b for (_, p), b in zip(found, column[kind + "_logprobs"]))
        wrong += len(ids) - min(tokens, bits)
        print(f"{kind}, {n} rows: of {len(ids)} answers {tokens} have the tokens, and {bits} the bits")
sys.exit(wrong > 0)
