package android.os;

import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.lang.reflect.Field;

public class ParcelFileDescriptor {
  private final FileInputStream stream;

  public ParcelFileDescriptor(FileInputStream stream) {
    this.stream = stream;
  }

  /** The number that Java keeps to itself: needs --add-opens java.base/java.io=ALL-UNNAMED. */
  public int getFd() {
    try {
      Field number = FileDescriptor.class.getDeclaredField("fd");
      number.setAccessible(true);
      return number.getInt(stream.getFD());
    } catch (java.io.IOException | ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }
}
