import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import org.adrenoc.Model;
import org.adrenoc.Options;

/** Loads and closes a model so often: OPENCL BUNDLE CACHE TIMES; prints KiB before and after. */
final class Loops {
  public static void main(String[] words) throws Exception {
    Options options = Expect.options(words[0]).cacheFolder(new File(words[2])).trustFiles(true);
    File bundle = new File(words[1]);
    int times = Integer.parseInt(words[3]);
    // Pools of the driver and the JVM fill up first.
    repeat(bundle, options, times / 10);
    long before = residentKib();
    repeat(bundle, options, times);
    System.out.println(before + " " + residentKib());
  }

  private static void repeat(File bundle, Options options, int times) {
    for (int i = 0; i < times; i++) {
      try (Model model = Model.fromFile(bundle, options)) {
        model.bindInput(0, ByteBuffer.allocateDirect((int) model.inputs().get(0).bytes()));
      }
    }
  }

  private static long residentKib() throws IOException {
    System.gc();
    for (String line : Files.readAllLines(new File("/proc/self/status").toPath())) {
      if (line.startsWith("VmRSS:")) {
        return Long.parseLong(line.replaceAll("\\D", ""));
      }
    }
    throw new AssertionError("no VmRSS");
  }
}
