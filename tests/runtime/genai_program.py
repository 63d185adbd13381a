"""Generates by onnxruntime-genai with adrenoc's provider, and by onnxruntime's CPU; prints JSON.

    python genai_program.py LIBRARY FOLDER CONTEXT TOKENS ID...

The folder has the model with its configuration, and the one of adrenoc's node by the name CONTEXT.
"""

import json
import sys

import onnxruntime_genai as og


def make(model: og.Model, tokens: list[int], most: int) -> tuple[og.Generator, list[int]]:
    """A generator, and the greedy tokens after these."""
    settings = og.GeneratorParams(model)
    settings.set_search_options(max_length=len(tokens) + most, do_sample=False)
    generator = og.Generator(model, settings)
    return generator, go_on(generator, tokens)


def go_on(generator: og.Generator, tokens: list[int]) -> list[int]:
    """What it makes after these tokens, until there is no room."""
    generator.append_tokens(tokens)
    made = []
    while not generator.is_done():
        generator.generate_next_token()
        made.append(int(generator.get_next_tokens()[0]))
    return made


def main() -> None:
    library, folder, context, most, *ids = sys.argv[1:]
    prompt = [int(one) for one in ids]
    _, expected = make(og.Model(og.Config(folder)), prompt, int(most))
    og.register_execution_provider_library("adrenoc", library)
    config = og.Config(folder)
    config.clear_providers()
    config.append_provider("AdrenocExecutionProvider")
    config.overlay(json.dumps({"model": {"decoder": {"filename": context}}}))
    model = og.Model(config)
    generator, made = make(model, prompt, int(most))
    generator.rewind_to(len(prompt) + 3)
    again = go_on(generator, [made[3]])
    _, second = make(model, prompt, int(most))
    print(json.dumps({"cpu": expected, "made": made, "again": again, "second": second}))


if __name__ == "__main__":
    main()
