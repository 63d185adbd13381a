import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import org.adrenoc.Model;
import org.adrenoc.Options;
import org.adrenoc.lab.Lab;

/** The app without its screen: OPENCL ASSETS JOURNAL PAGE; prints the report. */
final class LabRun {
  public static void main(String[] words) throws IOException {
    Options options = new Options().openclLibrary(words[0]);
    Lab lab = new Lab(new Folder(new File(words[1])), options, new File(words[2]), "a JVM");
    lab.run(step -> System.err.println(step));
    if (!lab.isDone()) {
      throw new IllegalStateException("something is left: " + lab.report());
    }
    byte[] page = lab.page("All is done.").getBytes(StandardCharsets.UTF_8);
    Files.write(new File(words[3]).toPath(), page);
    System.out.print(lab.report());
  }

  private static final class Folder implements Lab.Contents {
    private final File folder;

    Folder(File folder) {
      this.folder = folder;
    }

    @Override
    public Model load(String name, Options options) {
      return Model.fromFile(new File(folder, name), options);
    }

    @Override
    public ByteBuffer read(String name) throws IOException {
      try (FileChannel file = FileChannel.open(new File(folder, name).toPath())) {
        return file.map(FileChannel.MapMode.READ_ONLY, 0, file.size());
      }
    }
  }
}
