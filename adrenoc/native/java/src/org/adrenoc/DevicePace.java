package org.adrenoc;

/** How all models of the app leave the GPU to others. Any thread may call any method. */
public final class DevicePace {
  private DevicePace() {}

  /**
   * No model computes any more, as from onStop on: calls that do throw {@link
   * AdrenocException.NotReady} until {@link #resume}. A run that goes on ends, tokens after the one that
   * is under way; an empty prompt goes on. Waits for that at most so long, without limit if that is
   * negative; whether all has ended. Not out of a listener of tokens.
   */
  public static boolean pause(long timeoutMs) {
    return Native.pause(timeoutMs);
  }

  /** Lets models compute again, as from onStart on. */
  public static void resume() {
    Native.resume();
  }

  /**
   * The most milliseconds of the GPU that a run takes at once, so that what draws the screen gets its
   * turn in between; 0, as at first, for no limit. No single kernel is cut.
   */
  public static void setSubmissionLimit(double ms) {
    Native.setSubmissionLimit(ms);
  }
}
