import java.io.File;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import org.adrenoc.AdrenocException;
import org.adrenoc.DevicePace;
import org.adrenoc.Model;
import org.adrenoc.Tensor;

/** Runs in pieces, and none in a pause: OPENCL BUNDLE. */
final class Pace {
  public static void main(String[] words) throws Exception {
    try (Model model = Model.fromFile(new File(words[1]), Expect.options(words[0]))) {
      Map<String, ByteBuffer> inputs = new HashMap<>();
      for (Tensor tensor : model.inputs()) {
        inputs.put(tensor.name(), tensor.allocate());
      }
      Map<String, ByteBuffer> expected = model.run(inputs);
      DevicePace.setSubmissionLimit(1e-6);
      for (int i = 0; i < 5; i++) {
        Expect.that(model.run(inputs).equals(expected), "runs in pieces are right");
      }
      DevicePace.setSubmissionLimit(0);
      Expect.thrown(
          AdrenocException.BadArgument.class, () -> DevicePace.setSubmissionLimit(Double.NaN));
      Expect.that(DevicePace.pause(-1) && DevicePace.pause(0), "nothing goes on");
      Expect.words(
          Expect.thrown(AdrenocException.NotReady.class, () -> model.run(inputs)), "paused");
      DevicePace.resume();
      Expect.that(model.run(inputs).equals(expected), "it runs again");
    }
    DevicePace.pause(-1);
  }
}
