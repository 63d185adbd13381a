package org.adrenoc.lab;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;
import org.adrenoc.DeviceMemory;
import org.adrenoc.Generation;
import org.adrenoc.Model;
import org.adrenoc.Options;

/**
 * One language model: each token beside the reference's, after those of the reference, where that
 * is sure of its choice; then how long a prompt takes, and a token after it.
 */
final class Decoder extends Lab.Step {
  private static final int ROUNDS = 3;
  private static final int TIMED = 32;

  private final String bundle;
  private final long[] prompt;
  private final long[] expected;
  private final long[] sure;

  Decoder(String[] row) {
    super("decoder", row[1]);
    bundle = row[2];
    prompt = numbers(row[3]);
    expected = numbers(row[4]);
    sure = numbers(row[5]);
  }

  private static long[] numbers(String text) {
    return Arrays.stream(text.split(",")).mapToLong(Long::parseLong).toArray();
  }

  @Override
  Json run(Lab.Contents contents, Options options) {
    long before = DeviceMemory.now().used();
    long begun = System.nanoTime();
    try (Model model = contents.load(bundle, options)) {
      double initMs = since(begun);
      Generation generation = model.generation().endTokens();
      for (int at = 0; at < expected.length; at++) {
        // What the model picked itself is not what the next step begins with.
        generation.rewind(at == 0 ? 0 : prompt.length + at - 1);
        long seen = one(generation, at == 0 ? prompt : new long[] {expected[at - 1]});
        if (seen != expected[at] && sure[at] != 0) {
          String text = "token " + at + " is wrong: seen " + seen + ", expected " + expected[at];
          return about("wrong").put("text", text);
        }
      }
      return timed(generation)
          .put("init_ms", initMs)
          .put("memory_bytes", DeviceMemory.now().used() - before)
          .put("notes", model.notes());
    }
  }

  private static long one(Generation generation, long[] given) {
    AtomicLong seen = new AtomicLong();
    generation.maxTokens(1).generate(given, token -> set(seen, token));
    return seen.get();
  }

  private static boolean set(AtomicLong to, long token) {
    to.set(token);
    return true;
  }

  private Json timed(Generation generation) {
    double[] prompts = new double[ROUNDS];
    double[] tokens = new double[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
      generation.rewind(0);
      long begun = System.nanoTime();
      one(generation, prompt);
      prompts[round] = since(begun);
      begun = System.nanoTime();
      int made = generation.maxTokens(TIMED).generate(new long[0], token -> true);
      tokens[round] = since(begun) / made;
    }
    Arrays.sort(prompts);
    Arrays.sort(tokens);
    return about("right")
        .put("tokens", expected.length)
        .put("prompt_tokens", prompt.length)
        .put("prompt_ms", prompts[ROUNDS / 2])
        .put("token_ms", tokens[ROUNDS / 2]);
  }

  private static double since(long start) {
    return (System.nanoTime() - start) / 1e6;
  }
}
