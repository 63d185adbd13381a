import java.io.File;
import java.nio.ByteBuffer;
import java.util.concurrent.CountDownLatch;
import org.adrenoc.AdrenocException;
import org.adrenoc.Model;
import org.adrenoc.Options;

/** Models that are not there, damaged or closed: OPENCL TAR. */
final class Faults {
  public static void main(String[] words) throws Exception {
    Options options = Expect.options(words[0]);
    File tar = new File(words[1]);
    Class<AdrenocException.NotFound> notFound = AdrenocException.NotFound.class;
    Class<AdrenocException.BadBundle> badBundle = AdrenocException.BadBundle.class;
    File absent = new File("/nowhere/\u00e4\ud83d\ude00.adrenoc");
    Expect.words(
        Expect.thrown(notFound, () -> Model.fromFile(absent, options)), "\u00e4\ud83d\ude00");
    Expect.words(
        Expect.thrown(
            AdrenocException.BadArgument.class,
            () -> Model.fromFile(new File("a\0b"), options)),
        "the character 0");
    byte[] bytes = Expect.read(tar.getParentFile(), tar.getName());
    bytes[bytes.length / 2] ^= 1;
    ByteBuffer damaged = ByteBuffer.wrap(bytes);
    Expect.thrown(badBundle, () -> Model.fromBuffer(damaged, options));
    Expect.thrown(badBundle, () -> Model.fromBuffer(ByteBuffer.allocateDirect(0), options));
    Expect.thrown(badBundle, () -> Model.fromBuffer(ByteBuffer.allocate(10000), options));
    Expect.thrown(notFound, () -> Model.fromDescriptor(-1, 0, 10000, options));
    Expect.thrown(
        AdrenocException.NoDevice.class,
        () -> Model.fromFile(tar, Expect.options(words[0]).device("no such GPU")));

    Model model = Model.fromFile(tar, options);
    giveNothing(model, tar);
    Thread[] users = new Thread[8];
    CountDownLatch begun = new CountDownLatch(users.length);
    int[] ended = new int[1];
    for (int i = 0; i < users.length; i++) {
      users[i] = new Thread(() -> use(model, begun, ended));
      users[i].start();
    }
    begun.await();
    model.close();
    model.close();
    for (Thread user : users) {
      user.join();
    }
    Expect.that(ended[0] == users.length, "each thread is told that the model was closed");
    Class<AdrenocException.Closed> closed = AdrenocException.Closed.class;
    Expect.words(Expect.thrown(closed, model::run), "the model is closed");
    Expect.thrown(closed, model::inputs);
    Expect.thrown(closed, () -> model.bindInput(0, ByteBuffer.allocateDirect(4)));
    Expect.thrown(closed, model::notes);
    Expect.thrown(closed, model::generation);
    Expect.that(model.name().equals("two"), "a closed model still has a name");
  }

  /** What Java would say of its own classes, in place of the end of the process. */
  private static void giveNothing(Model model, File tar) {
    Class<NullPointerException> nothing = NullPointerException.class;
    Expect.words(
        Expect.thrown(nothing, () -> model.setInputShapes((long[][]) null)), "input shapes");
    Expect.words(Expect.thrown(nothing, () -> model.bindHardwareInput(0, null)), "buffer");
    Expect.words(Expect.thrown(nothing, () -> model.bindHardwareOutput(0, null)), "buffer");
    Expect.thrown(nothing, () -> Model.fromFile(null, new Options()));
    Expect.words(Expect.thrown(nothing, () -> Model.fromFile(tar, null)), "options");
    Expect.words(Expect.thrown(nothing, () -> new Options().performance(null)), "performance");
    Expect.words(Expect.thrown(nothing, () -> new Options().priority(null)), "priority");
    Expect.thrown(nothing, () -> model.run((ByteBuffer[]) null, new ByteBuffer[0]));
    model.setInputShapes(null, null);
  }

  /** Asks and runs until somebody closes the model. */
  private static void use(Model model, CountDownLatch begun, int[] ended) {
    for (int i = 0; ; i++) {
      try {
        ByteBuffer[] inputs = {
          model.inputs().get(0).allocate(), model.inputs().get(1).allocate(),
        };
        ByteBuffer[] outputs = {
          model.outputs().get(0).allocate(), model.outputs().get(1).allocate(),
        };
        model.run(inputs, outputs);
      } catch (AdrenocException.Closed error) {
        synchronized (ended) {
          ended[0]++;
        }
        return;
      }
      if (i == 1) {
        begun.countDown();
      }
    }
  }
}
