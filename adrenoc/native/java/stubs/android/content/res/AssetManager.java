package android.content.res;

import java.io.IOException;

public final class AssetManager {
  public AssetFileDescriptor openFd(String fileName) throws IOException {
    throw new UnsupportedOperationException();
  }
}
