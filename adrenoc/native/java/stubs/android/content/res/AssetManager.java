package android.content.res;

import java.io.IOException;
import java.io.InputStream;

public final class AssetManager {
  public AssetFileDescriptor openFd(String fileName) throws IOException {
    throw new UnsupportedOperationException();
  }

  public InputStream open(String fileName) throws IOException {
    throw new UnsupportedOperationException();
  }
}
