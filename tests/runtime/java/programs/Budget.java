import java.io.File;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import org.adrenoc.AdrenocException;
import org.adrenoc.DeviceMemory;
import org.adrenoc.Model;
import org.adrenoc.Options;
import org.adrenoc.Tensor;

/** Two models in a budget, and Android's wishes to trim: OPENCL BUNDLE OTHER. */
final class Budget {
  public static void main(String[] words) throws Exception {
    Options options = Expect.options(words[0]);
    try (Model first = Model.fromFile(new File(words[1]), options);
        Model second = Model.fromFile(new File(words[2]), options)) {
      Map<String, ByteBuffer> inputs = inputs(first);
      Map<String, ByteBuffer> expected = first.run(inputs);
      second.run(inputs(second));
      DeviceMemory both = DeviceMemory.now();
      Expect.that(both.models() == 2 && both.evicted() == 0 && both.used() > 0, "two are there");
      DeviceMemory.setBudget(1);
      Expect.that(DeviceMemory.now().evicted() == 2, "a budget holds at once");
      Expect.that(first.run(inputs).equals(expected), "it comes back, and is right");
      Expect.that(DeviceMemory.now().evicted() == 1, "alone");
      Expect.that(DeviceMemory.now().budget() == 1, "the budget is told");
      DeviceMemory.setBudget(0);
      trim(first, inputs, expected);
      Class<AdrenocException.BadArgument> bad = AdrenocException.BadArgument.class;
      Expect.thrown(bad, () -> DeviceMemory.setBudget(-1));
      Expect.thrown(NullPointerException.class, () -> DeviceMemory.trim(null));
    }
    DeviceMemory after = DeviceMemory.now();
    Expect.that(after.models() == 0 && after.used() == 0 && after.pooled() == 0, "all is gone");
    Expect.that(after.evictions() >= 3 && after.returns() >= 2, "all of it was counted");
  }

  /** As Android numbers its levels. */
  private static void trim(
      Model model, Map<String, ByteBuffer> inputs, Map<String, ByteBuffer> expected) {
    long used = DeviceMemory.now().used();
    DeviceMemory.onTrimMemory(5);
    Expect.that(DeviceMemory.now().used() == used, "a running app keeps what it uses");
    DeviceMemory.onTrimMemory(20);
    long hidden = DeviceMemory.now().used();
    Expect.that(hidden < used && DeviceMemory.now().evicted() == 1, "a hidden one keeps constants");
    DeviceMemory.onTrimMemory(40);
    Expect.that(DeviceMemory.now().used() == 0, "in the background nothing is kept");
    Expect.that(model.run(inputs).equals(expected), "it comes back, and is right");
  }

  private static Map<String, ByteBuffer> inputs(Model model) {
    Map<String, ByteBuffer> made = new HashMap<>();
    for (Tensor tensor : model.inputs()) {
      ByteBuffer data = tensor.allocate();
      for (int i = 0; i + 4 <= data.capacity(); i += 4) {
        data.putFloat(i, (i % 97) / 97f);
      }
      made.put(tensor.name(), data);
    }
    return made;
  }
}
