package android.os;

import java.io.Closeable;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;

public class ParcelFileDescriptor implements Closeable {
  public static final int MODE_READ_ONLY = 0x10000000;

  public static ParcelFileDescriptor open(File file, int mode) throws FileNotFoundException {
    throw new UnsupportedOperationException();
  }

  public int getFd() {
    throw new UnsupportedOperationException();
  }

  @Override
  public void close() throws IOException {
    throw new UnsupportedOperationException();
  }
}
