package android.os;

import java.io.Closeable;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.reflect.Field;

public class ParcelFileDescriptor implements Closeable {
  public static final int MODE_READ_ONLY = 0x10000000;

  private final FileInputStream stream;

  public ParcelFileDescriptor(FileInputStream stream) {
    this.stream = stream;
  }

  public static ParcelFileDescriptor open(File file, int mode) throws FileNotFoundException {
    if (mode != MODE_READ_ONLY) {
      throw new IllegalArgumentException("mode " + mode);
    }
    return new ParcelFileDescriptor(new FileInputStream(file));
  }

  /** The number that Java keeps to itself: needs --add-opens java.base/java.io=ALL-UNNAMED. */
  public int getFd() {
    try {
      Field number = FileDescriptor.class.getDeclaredField("fd");
      number.setAccessible(true);
      return number.getInt(stream.getFD());
    } catch (IOException | ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  @Override
  public void close() throws IOException {
    stream.close();
  }
}
