import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.Arrays;
import org.adrenoc.Options;

/** What the programs of the tests have in common. */
final class Expect {
  private Expect() {}

  static void that(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError("not so: " + what);
    }
  }

  /** The exception of just this class. */
  static <E extends Throwable> E thrown(Class<E> kind, Runnable work) {
    try {
      work.run();
    } catch (Throwable error) {
      if (error.getClass() == kind) {
        return kind.cast(error);
      }
      throw new AssertionError("expected " + kind + ", not " + error, error);
    }
    throw new AssertionError("expected " + kind + ", and nothing was thrown");
  }

  static void words(Throwable error, String... words) {
    for (String word : words) {
      that(error.getMessage().contains(word), "\"" + error.getMessage() + "\" says " + word);
    }
  }

  static Options options(String opencl) {
    return new Options().openclLibrary(opencl);
  }

  static byte[] read(File folder, String name) {
    try {
      return Files.readAllBytes(new File(folder, name).toPath());
    } catch (IOException error) {
      throw new AssertionError(error);
    }
  }

  static boolean holds(ByteBuffer buffer, byte[] expected) {
    byte[] seen = new byte[buffer.remaining()];
    buffer.duplicate().get(seen);
    return Arrays.equals(seen, expected);
  }
}
