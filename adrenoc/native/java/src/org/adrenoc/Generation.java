package org.adrenoc;

import android.os.CancellationSignal;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;

/**
 * Tokens of a decoder, and its context: those of prompts and those that were made.
 *
 * <pre>
 *   Generation generation = model.generation();
 *   generation.temperature(0.8f).topK(40);
 *   generation.generate(prompt, token -&gt; { show(token); return true; });
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
    if (signal != null) {
      signal.throwIfCanceled();
      signal.setOnCancelListener(this::stop);
    }
    Told told = new Told(listener, signal);
    try {
      access.apply(
          model -> {
            float[] drawing = {
              temperature, topP, minP, repetitionPenalty, presencePenalty, frequencyPenalty
            };
            long[] biased = new long[bias.size()];
            float[] added = new float[bias.size()];
            int at = 0;
            for (Map.Entry<Long, Float> one : bias.entrySet()) {
              biased[at] = one.getKey();
              added[at++] = one.getValue();
            }
            Native.generate(
                model, prompt, most, drawing, topK, seed, ends, biased, added, told);
          });
    } finally {
      if (signal != null) {
        signal.setOnCancelListener(null);
      }
    }
    if (signal != null) {
      signal.throwIfCanceled();
    }
    if (told.cut) {
      throw new AdrenocException.Closed("the model was closed while it made tokens");
    }
    return told.count;
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
  private final class Told implements OnToken {
    private final OnToken listener;
    private final CancellationSignal signal;
    private int count;
    private boolean cut;

    Told(OnToken listener, CancellationSignal signal) {
      this.listener = listener;
      this.signal = signal;
    }

    @Override
    public boolean onToken(long token) {
      if (signal != null && signal.isCanceled()) {
        return false;
      }
      count++;
      boolean goesOn = listener.onToken(token);
      cut = goesOn && access.isClosing();
      return goesOn && !cut;
    }
  }
}
