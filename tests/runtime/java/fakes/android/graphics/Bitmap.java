package android.graphics;

import java.nio.Buffer;
import java.nio.ByteBuffer;

/** Pixels of RGBA, in rows with a gap behind them. */
public final class Bitmap {
  private final byte[] pixels;
  private final int width;
  private final int height;
  private final Config config;

  public Bitmap(byte[] pixels, int width, int height, Config config) {
    this.pixels = pixels;
    this.width = width;
    this.height = height;
    this.config = config;
  }

  public int getWidth() {
    return width;
  }

  public int getHeight() {
    return height;
  }

  public int getRowBytes() {
    return pixels.length / height;
  }

  public Config getConfig() {
    return config;
  }

  public Bitmap copy(Config config, boolean isMutable) {
    return new Bitmap(pixels, width, height, config);
  }

  public void copyPixelsToBuffer(Buffer dst) {
    if (config != Config.ARGB_8888) {
      throw new IllegalStateException("the pixels of such a bitmap are the GPU's");
    }
    ((ByteBuffer) dst).put(pixels);
  }

  /** How pixels lie in memory. */
  public enum Config {
    ARGB_8888,
    HARDWARE
  }
}
