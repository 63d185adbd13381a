import java.io.File;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.adrenoc.AdrenocException;
import org.adrenoc.Model;

/** The calls of a bundle of two signatures, wide and tall: OPENCL BUNDLE. */
final class Signatures {
  public static void main(String[] words) {
    try (Model model = Model.fromFile(new File(words[1]), Expect.options(words[0]))) {
      Expect.that(model.signatures().equals(Arrays.asList("wide", "tall")), "two names");
      Map<String, ByteBuffer> wide = run(model, "wide_x:0");
      Expect.that(wide.size() == 2, "two outputs");
      model.setSignature("tall");
      Expect.that(model.inputsOf(0).toString().equals(model.inputs().toString()), "its inputs");
      Map<String, ByteBuffer> tall = run(model, "tall_x:0");
      Expect.that(tall.size() == 1, "one output");
      ByteBuffer rows = wide.get("wide_y0").duplicate();
      rows.limit(64);
      Expect.that(rows.slice().equals(tall.get("tall_y0")), "the same numbers");
      Expect.words(
          Expect.thrown(AdrenocException.BadArgument.class, () -> model.setSignature("tal")),
          "the bundle has wide, tall");
      Expect.thrown(NullPointerException.class, () -> model.setSignature(null));
      Expect.that(run(model, "tall_x:0").equals(tall), "a wrong name changes nothing");
      model.setSignature("wide");
      Expect.that(run(model, "wide_x:0").equals(wide), "and back");
    }
  }

  /** The outputs for ones. */
  private static Map<String, ByteBuffer> run(Model model, String input) {
    Expect.that(model.inputs().get(0).name().equals(input), "the input is " + input);
    ByteBuffer ones = model.inputs().get(0).allocate();
    for (int at = 0; at < ones.capacity(); at += 4) {
      ones.putFloat(at, 1);
    }
    Map<String, ByteBuffer> inputs = new HashMap<>();
    inputs.put(input, ones);
    return model.run(inputs);
  }
}
