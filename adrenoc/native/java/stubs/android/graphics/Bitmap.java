package android.graphics;

import java.nio.Buffer;

public final class Bitmap {
  private Bitmap() {}

  public int getWidth() {
    throw new UnsupportedOperationException();
  }

  public int getHeight() {
    throw new UnsupportedOperationException();
  }

  public int getRowBytes() {
    throw new UnsupportedOperationException();
  }

  public Config getConfig() {
    throw new UnsupportedOperationException();
  }

  public Bitmap copy(Config config, boolean isMutable) {
    throw new UnsupportedOperationException();
  }

  public void copyPixelsToBuffer(Buffer dst) {
    throw new UnsupportedOperationException();
  }

  public enum Config {
    ARGB_8888
  }
}
