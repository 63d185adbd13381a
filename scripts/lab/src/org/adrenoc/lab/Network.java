package org.adrenoc.lab;

import java.util.Arrays;
import org.adrenoc.AdrenocException;
import org.adrenoc.DeviceMemory;
import org.adrenoc.Model;
import org.adrenoc.Options;

/** One network: its proof, then rounds of runs, each timed by itself with its wait. */
final class Network extends Lab.Step {
  private static final int WARM_UP = 10;
  private static final int ROUNDS = 3;
  private static final int RUNS = 50;
  private static final double ROUND_MS = 5000;

  private final String bundle;

  Network(String[] row) {
    super("network", row[1]);
    bundle = row[2];
  }

  @Override
  Json run(Lab.Contents contents, Options options) {
    long before = DeviceMemory.now().used();
    long begun = System.nanoTime();
    try (Model model = contents.load(bundle, options)) {
      double initMs = since(begun);
      try {
        model.verify();
      } catch (AdrenocException.WrongResults wrong) {
        return about("wrong").put("text", wrong.getMessage());
      }
      for (int i = 0; i < model.inputs().size(); i++) {
        model.bindInput(i, model.inputs().get(i).allocate());
      }
      for (int i = 0; i < model.outputs().size(); i++) {
        model.bindOutput(i, model.outputs().get(i).allocate());
      }
      for (int i = 0; i < WARM_UP; i++) {
        model.run();
      }
      return timed(model).put("init_ms", initMs)
          .put("memory_bytes", DeviceMemory.now().used() - before)
          .put("notes", model.notes());
    }
  }

  private Json timed(Model model) {
    double[] all = new double[ROUNDS * RUNS];
    int count = 0;
    StringBuilder rounds = new StringBuilder("[");
    for (int round = 0; round < ROUNDS; round++) {
      int first = count;
      long begun = System.nanoTime();
      for (int run = 0; run < RUNS && (run == 0 || since(begun) < ROUND_MS); run++) {
        long start = System.nanoTime();
        model.run();
        all[count++] = since(start);
      }
      double middle = quantile(Arrays.copyOfRange(all, first, count), 0.5);
      rounds.append(round > 0 ? "," : "").append(middle);
    }
    double[] runs = Arrays.copyOf(all, count);
    return about("right")
        .put("p50_ms", quantile(runs, 0.5))
        .put("p90_ms", quantile(runs, 0.9))
        .put("runs", count)
        .raw("rounds_ms", rounds.append(']').toString());
  }

  private static double quantile(double[] values, double share) {
    Arrays.sort(values);
    return values[(int) Math.round(share * (values.length - 1))];
  }

  private static double since(long start) {
    return (System.nanoTime() - start) / 1e6;
  }
}
