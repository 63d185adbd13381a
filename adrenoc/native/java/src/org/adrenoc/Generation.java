package org.adrenoc;

import android.os.CancellationSignal;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.function.BooleanSupplier;

/**
 * Tokens of a decoder, and its context: those of prompts and those that were made.
 *
 * <pre>
 *   Generation generation = model.generation();
 *   generation.temperature(0.8f).topK(40);
 *   generation.generate(prompt, token -&gt; { show(token); return true; });
 * </pre>
 *
 * Where the bundle has its model's tokenizer, text goes in and comes out:
 *
 * <pre>
 *   generation.answer(messages, piece -&gt; { show(piece); return true; });
 * </pre>
 */
public final class Generation {
  private final Access access;
  private int most;
  private float temperature;
  private int topK;
  private float topP;
  private float minP;
  private float repetitionPenalty = 1;
  private float presencePenalty;
  private float frequencyPenalty;
  private final Map<Long, Float> bias = new TreeMap<>();
  private long seed;
  private long[] ends;
  private String[] stops = {};

  Generation(Access access) {
    this.access = access;
  }

  /** At most so many tokens a call; 0 for as many as there is room for. */
  public Generation maxTokens(int count) {
    most = checkCount(count, "maxTokens");
    return this;
  }

  /** 0 takes the likeliest token, higher ones draw more freely. */
  public Generation temperature(float value) {
    temperature = value;
    return this;
  }

  /** Draw among so many of the likeliest tokens; 0 for all. */
  public Generation topK(int count) {
    topK = checkCount(count, "topK");
    return this;
  }

  /** ... and of those among the fewest of so much probability; 0 for all. */
  public Generation topP(float probability) {
    topP = probability;
    return this;
  }

  /** ... and of those among tokens that are at least so likely, the likeliest being 1; 0 for all. */
  public Generation minP(float share) {
    minP = share;
    return this;
  }

  /**
   * Logits of tokens that the context has are divided by this where positive, else multiplied; 1 for
   * no change.
   */
  public Generation repetitionPenalty(float factor) {
    repetitionPenalty = factor;
    return this;
  }

  /** Taken away once from the logit of a token that the call has made. */
  public Generation presencePenalty(float value) {
    presencePenalty = value;
    return this;
  }

  /** Taken away as often as the call has made the token. */
  public Generation frequencyPenalty(float value) {
    frequencyPenalty = value;
    return this;
  }

  /** Added to the logit of a token; 0 takes an earlier one back. */
  public Generation bias(long token, float added) {
    bias.put(token, added);
    return this;
  }

  /** The same seed after the same tokens draws the same ones. */
  public Generation seed(long value) {
    seed = value;
    return this;
  }

  /** After one of these no more are made; without a call of this: the model's own. */
  public Generation endTokens(long... tokens) {
    Objects.requireNonNull(tokens, "the end tokens are null, expected none or some");
    ends = tokens.clone();
    return this;
  }

  /**
   * Tokens are picked as the model's makers say; else the likeliest is, by which some models repeat
   * themselves.
   *
   * @throws AdrenocException.Unsupported the bundle has no tables of its tokenizer
   */
  public Generation usual() {
    float[] said = access.call(Native::usual);
    temperature(said[0]).topP(said[1]).minP(said[2]).repetitionPenalty(said[3]);
    return presencePenalty(said[4]).frequencyPenalty(said[5]).topK((int) said[6]);
  }

  /** Each ends the text that has it, and is no part of it. */
  public Generation stopTexts(String... texts) {
    Objects.requireNonNull(texts, "the texts that stop are null, expected none or some");
    stops = texts.clone();
    return this;
  }

  /** As below, and nobody cancels but the listener and {@link #stop}. */
  public int generate(long[] prompt, OnToken listener) {
    return generate(prompt, listener, null);
  }

  /**
   * Takes in the prompt and makes tokens after what the context holds; an empty prompt goes on.
   * Returns how many were told, which is after an end token, the listener's "no", {@link #stop} or
   * {@link #maxTokens}.
   *
   * @throws AdrenocException.ContextFull a token has no room; those before it were told
   * @throws android.os.OperationCanceledException by the signal
   */
  public int generate(long[] prompt, OnToken listener, CancellationSignal signal) {
    Objects.requireNonNull(prompt, "the prompt is null; an empty one goes on");
    Objects.requireNonNull(listener, "the listener is null, expected one that takes tokens");
    Told told = new Told(signal);
    OnToken tell = token -> told.goesOn(() -> listener.onToken(token));
    told.ask(
        model ->
            Native.generate(
                model, prompt, most, drawing(), topK, seed, ends, biased(), added(), tell));
    return told.count;
  }

  /** As below, and nobody cancels but the listener and {@link #stop}. */
  public void answer(List<Message> messages, OnText listener) {
    answer(messages, listener, null);
  }

  /**
   * Answers a whole conversation, as the model's template writes it: a system's message or none, then
   * a user's and an answer in turns, a user's last. The context is that conversation then: what it
   * shares with what the context held is not computed again.
   *
   * @throws AdrenocException.Unsupported the bundle has no tables of its tokenizer, or does not hold
   *     how its model wants turns written
   * @throws AdrenocException.ContextFull a token has no room; the text before it was told
   * @throws android.os.OperationCanceledException by the signal
   */
  public void answer(List<Message> messages, OnText listener, CancellationSignal signal) {
    Objects.requireNonNull(messages, "the messages are null");
    byte[][] roles = new byte[messages.size()][];
    byte[][] contents = new byte[messages.size()][];
    for (int i = 0; i < roles.length; i++) {
      roles[i] = Text.encode(messages.get(i).role);
      contents[i] = Text.encode(messages.get(i).content);
    }
    tellText(roles, contents, listener, signal);
  }

  /** Goes on with a text, which is all that the context holds then; as {@link #answer} otherwise. */
  public void continueText(String text, OnText listener, CancellationSignal signal) {
    Objects.requireNonNull(text, "the text is null");
    tellText(null, new byte[][] {Text.encode(text)}, listener, signal);
  }

  private void tellText(
      byte[][] roles, byte[][] contents, OnText listener, CancellationSignal signal) {
    Objects.requireNonNull(listener, "the listener is null, expected one that takes text");
    byte[][] last = new byte[stops.length][];
    for (int i = 0; i < last.length; i++) {
      last[i] = Text.encode(stops[i]);
    }
    Told told = new Told(signal);
    OnPiece tell = piece -> told.goesOn(() -> listener.onText(Text.decode(piece)));
    told.ask(
        model ->
            Native.answer(
                model, roles, contents, most, drawing(), topK, seed, ends, biased(), added(),
                last, tell));
  }

  /** The tokens of a text, with those that the tokenizer puts around it. */
  public long[] encode(String text) {
    Objects.requireNonNull(text, "the text is null");
    return access.call(model -> Native.encode(model, Text.encode(text), true));
  }

  /** The text of tokens, those left out that are no text. */
  public String decode(long... tokens) {
    Objects.requireNonNull(tokens, "the tokens are null");
    return Text.decode(access.call(model -> Native.decode(model, tokens)));
  }

  private float[] drawing() {
    return new float[] {
      temperature, topP, minP, repetitionPenalty, presencePenalty, frequencyPenalty
    };
  }

  private long[] biased() {
    return bias.keySet().stream().mapToLong(Long::longValue).toArray();
  }

  private float[] added() {
    float[] added = new float[bias.size()];
    int at = 0;
    for (float one : bias.values()) {
      added[at++] = one;
    }
    return added;
  }

  /** Ends a generate that goes on, after the token that is under way; from any thread. */
  public void stop() {
    access.applyAnywhere(Native::stop);
  }

  /** How many tokens the context holds. */
  public long tokens() {
    return context(false);
  }

  /** How many tokens the context has room for. */
  public long capacity() {
    return context(true);
  }

  /** Forgets all but the first tokens. The next generate then needs a prompt. */
  public void rewind(long tokens) {
    access.apply(model -> Native.rewind(model, tokens));
  }

  /** The context, for {@link #restore} of the same model. */
  public byte[] save() {
    return access.call(Native::saveContext);
  }

  /** Brings back what was saved of the same model; anything else leaves all as it was. */
  public void restore(byte[] saved) {
    Objects.requireNonNull(saved, "the saved context is null");
    access.apply(model -> Native.restoreContext(model, saved));
  }

  private long context(boolean ofRows) {
    return access.call(model -> Native.context(model, ofRows));
  }

  private static int checkCount(int count, String name) {
    if (count < 0) {
      throw new AdrenocException.BadArgument(name + " is " + count + ", expected 0 or more");
    }
    return count;
  }

  /** Between the native half and the app's listener: counts, and ends it where somebody closes. */
  private final class Told {
    private final CancellationSignal signal;
    private int count;
    private boolean cut;

    Told(CancellationSignal signal) {
      this.signal = signal;
    }

    /** Has the native half work, which tells what it makes by {@link #goesOn}. */
    void ask(Access.Deed work) {
      if (signal != null) {
        signal.throwIfCanceled();
        signal.setOnCancelListener(Generation.this::stop);
      }
      try {
        access.apply(work);
      } finally {
        if (signal != null) {
          signal.setOnCancelListener(null);
        }
      }
      if (signal != null) {
        signal.throwIfCanceled();
      }
      if (cut) {
        throw new AdrenocException.Closed("the model was closed while it made tokens");
      }
    }

    /** Whether to go on after what a listener is told. */
    boolean goesOn(BooleanSupplier listener) {
      if (signal != null && signal.isCanceled()) {
        return false;
      }
      count++;
      boolean wanted = listener.getAsBoolean();
      cut = wanted && access.isClosing();
      return wanted && !cut;
    }
  }
}
