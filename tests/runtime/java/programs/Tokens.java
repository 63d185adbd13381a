import android.os.CancellationSignal;
import android.os.OperationCanceledException;
import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.stream.Collectors;
import org.adrenoc.AdrenocException;
import org.adrenoc.Generation;
import org.adrenoc.Model;

/** Tokens of a decoder: OPENCL BUNDLE ID,ID,...; prints them until the context is full. */
final class Tokens {
  private static final int FEW = 5;

  public static void main(String[] words) throws Exception {
    long[] prompt = Arrays.stream(words[2].split(",")).mapToLong(Long::parseLong).toArray();
    try (Model model = Model.fromFile(new File(words[1]), Expect.options(words[0]))) {
      Generation generation = model.generation();
      List<Long> all = fill(generation, prompt);
      System.out.println(
          all.stream().map(token -> token.toString()).collect(Collectors.joining(" ")));
      goBack(generation, prompt, all);
      cancel(model, generation, prompt, all);
      listen(model, generation, prompt);
      draw(generation, prompt);
      generation.maxTokens(0).endTokens(all.get(2));
      generation.rewind(0);
      Expect.that(generation.generate(prompt, token -> true) <= 3, "an end token ends it");
    }
    closeAmong(words, prompt);
  }

  private static List<Long> some(Generation generation, int count, long... prompt) {
    List<Long> made = new ArrayList<>();
    int told = generation.maxTokens(count).generate(prompt, made::add);
    Expect.that(told == made.size(), "it counts what it told");
    return made;
  }

  private static List<Long> fill(Generation generation, long[] prompt) {
    List<Long> all = new ArrayList<>();
    Class<AdrenocException.ContextFull> full = AdrenocException.ContextFull.class;
    Expect.thrown(full, () -> generation.generate(prompt, all::add));
    Expect.that(generation.tokens() == generation.capacity(), "the context is full");
    return all;
  }

  private static void goBack(Generation generation, long[] prompt, List<Long> all) {
    generation.rewind(prompt.length);
    Expect.that(
        some(generation, FEW, all.get(0)).equals(all.subList(1, 1 + FEW)), "goes on the same");
    byte[] saved = generation.save();
    List<Long> next = all.subList(1 + FEW, 1 + 2 * FEW);
    Expect.that(some(generation, FEW).equals(next), "an empty prompt goes on");
    generation.rewind(0);
    generation.restore(saved);
    Expect.that(some(generation, FEW).equals(next), "what was restored goes on the same");
    Class<AdrenocException.BadArgument> bad = AdrenocException.BadArgument.class;
    Expect.thrown(bad, () -> generation.restore(new byte[3]));
    Class<NullPointerException> nothing = NullPointerException.class;
    Expect.words(Expect.thrown(nothing, () -> generation.restore(null)), "context");
    Expect.words(Expect.thrown(nothing, () -> generation.generate(null, token -> true)), "prompt");
    Expect.words(
        Expect.thrown(nothing, () -> generation.generate(new long[0], null)), "listener");
    Expect.words(
        Expect.thrown(nothing, () -> generation.endTokens((long[]) null)), "end tokens");
    Expect.thrown(bad, () -> generation.rewind(10000));
    Expect.thrown(bad, () -> generation.rewind(-1));
    Expect.thrown(bad, () -> generation.maxTokens(-1));
  }

  private static void cancel(Model model, Generation generation, long[] prompt, List<Long> all) {
    generation.maxTokens(0).rewind(0);
    CancellationSignal signal = new CancellationSignal();
    List<Long> made = new ArrayList<>();
    Expect.thrown(
        OperationCanceledException.class,
        () ->
            generation.generate(
                prompt,
                token -> {
                  made.add(token);
                  if (made.size() == 3) {
                    Thread other = new Thread(signal::cancel);
                    other.start();
                    join(other);
                  }
                  return true;
                },
                signal));
    Expect.that(made.equals(all.subList(0, 3)), "no token after the cancellation: " + made);
    Expect.thrown(
        OperationCanceledException.class,
        () -> generation.generate(prompt, token -> true, signal));
    Expect.that(some(generation, 2).equals(all.subList(3, 5)), "it goes on afterwards");
    generation.rewind(0);
    made.clear();
    int told =
        generation
            .maxTokens(0)
            .generate(
                prompt,
                token -> {
                  made.add(token);
                  generation.stop();
                  return true;
                });
    Expect.that(told < 4, "stop() ends it: " + told);
    generation.rewind(0);
    Expect.that(generation.generate(prompt, token -> false) == 1, "so does the listener");
  }

  /** What a listener throws comes out, and it may not wait for itself. */
  private static void listen(Model model, Generation generation, long[] prompt) {
    generation.rewind(0);
    IllegalArgumentException own = new IllegalArgumentException("my own");
    OnThrow thrower = new OnThrow(own);
    IllegalArgumentException seen =
        Expect.thrown(
            IllegalArgumentException.class, () -> generation.generate(prompt, thrower::hear));
    Expect.that(seen == own && thrower.told == 1, "the listener's exception comes out");
    generation.rewind(0);
    Class<IllegalStateException> state = IllegalStateException.class;
    generation.maxTokens(1);
    generation.generate(
        prompt,
        token -> {
          Expect.words(Expect.thrown(state, generation::tokens), "only stop() may be called");
          Expect.words(Expect.thrown(state, model::close), "a listener of tokens closed");
          return true;
        });
  }

  private static void draw(Generation generation, long[] prompt) {
    generation.temperature(1.5f).topP(0.9f).topK(40);
    List<List<Long>> drawn = new ArrayList<>();
    for (long seed : new long[] {4, 4, 5}) {
      generation.rewind(0);
      drawn.add(some(generation.seed(seed), 8, prompt));
    }
    Expect.that(drawn.get(0).equals(drawn.get(1)), "equal seeds draw the same");
    Expect.that(!drawn.get(0).equals(drawn.get(2)), "others do not");
    generation.temperature(0).rewind(0);
    long first = some(generation, 1, prompt).get(0);
    generation.rewind(0);
    long other = some(generation.bias(first, -1e30f), 1, prompt).get(0);
    Expect.that(other != first, "a bias bans a token");
    generation.bias(first, 0).minP(0.5f).repetitionPenalty(1.1f).frequencyPenalty(1e30f).rewind(0);
    List<Long> fresh = some(generation, 8, prompt);
    Expect.that(new HashSet<>(fresh).size() == 8, "no token is made twice: " + fresh);
    generation.minP(0).repetitionPenalty(1).frequencyPenalty(0);
  }

  /** Closing ends what makes tokens in another thread. */
  private static void closeAmong(String[] words, long[] prompt) {
    Model model = Model.fromFile(new File(words[1]), Expect.options(words[0]));
    Thread[] closer = new Thread[1];
    Expect.thrown(
        AdrenocException.Closed.class,
        () ->
            model
                .generation()
                .generate(
                    prompt,
                    token -> {
                      if (closer[0] == null) {
                        closer[0] = new Thread(model::close);
                        closer[0].start();
                        while (closer[0].getState() != Thread.State.WAITING) {
                          Thread.yield();
                        }
                      }
                      return true;
                    }));
    join(closer[0]);
    Expect.thrown(AdrenocException.Closed.class, model::generation);
  }

  private static void join(Thread thread) {
    try {
      thread.join();
    } catch (InterruptedException error) {
      throw new AssertionError(error);
    }
  }

  /** Throws at its first token. */
  private static final class OnThrow {
    private final RuntimeException error;
    private int told;

    OnThrow(RuntimeException error) {
      this.error = error;
    }

    boolean hear(long token) {
      told++;
      throw error;
    }
  }
}
