package org.adrenoc;

/**
 * Memory of the GPU over all models of the app: how much they hold, and how much they may.
 *
 * <pre>
 *   DeviceMemory.setBudget(256L &lt;&lt; 20);
 *   registerComponentCallbacks(...);  // in onTrimMemory(level): DeviceMemory.onTrimMemory(level)
 * </pre>
 *
 * Any thread may call any method, the main thread too: none waits for a run.
 */
public final class DeviceMemory {
  /** What is given back, each with those before it. */
  public enum Part {
    /** What nobody uses. */
    UNUSED,
    /** What lies between the launches of models: their next run takes longer. */
    BETWEEN_LAUNCHES,
    /** Constants too, which the next run moves to the device again. */
    CONSTANTS
  }

  // As android.content.ComponentCallbacks2 numbers them.
  private static final int RUNNING_CRITICAL = 15;
  private static final int BACKGROUND = 40;

  private final long[] numbers;

  private DeviceMemory(long[] numbers) {
    this.numbers = numbers;
  }

  /**
   * The most bytes that models hold together between runs; 0, as at first, for no limit. Beyond it
   * those that were used longest ago and do not compute give up what lies between their launches,
   * then their constants. Models of {@link Model#fromBuffer} keep these.
   */
  public static void setBudget(long bytes) {
    if (bytes < 0) {
      throw new AdrenocException.BadArgument("a budget of " + bytes + " bytes, expected 0 or more");
    }
    Native.setBudget(bytes);
  }

  /** Gives this part back; a model that computes does so when its run has ended. */
  public static void trim(Part part) {
    Native.trimPart(part.ordinal());
  }

  /**
   * What a level of Android's onTrimMemory asks for: constants once the app is in the background,
   * what lies between launches when its window is hidden or memory is short while it runs.
   */
  public static void onTrimMemory(int level) {
    if (level >= BACKGROUND) {
      trim(Part.CONSTANTS);
    } else if (level >= RUNNING_CRITICAL) {
      trim(Part.BETWEEN_LAUNCHES);
    } else {
      trim(Part.UNUSED);
    }
  }

  /** What is held now. */
  public static DeviceMemory now() {
    return new DeviceMemory(Native.memory());
  }

  /** Models that are loaded, those on the CPU apart. */
  public int models() {
    return (int) numbers[0];
  }

  /** Of these: whose constants are not on the device. */
  public int evicted() {
    return (int) numbers[1];
  }

  /** 0 for none. */
  public long budget() {
    return numbers[2];
  }

  /** Bytes in use. */
  public long used() {
    return numbers[3];
  }

  /** Bytes that wait to be used again. */
  public long pooled() {
    return numbers[4];
  }

  /** How often constants were given up since the app began. */
  public long evictions() {
    return numbers[5];
  }

  /** How often they were moved to the device again. */
  public long returns() {
    return numbers[6];
  }
}
