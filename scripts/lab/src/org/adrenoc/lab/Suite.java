package org.adrenoc.lab;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.adrenoc.Model;
import org.adrenoc.Options;
import org.adrenoc.Tensor;

/**
 * Cases in one bundle, as `adrenoc device verify` runs them: numbers beside those of the reference,
 * bits beside bits over repeats, and other inputs between, so that what nobody computed is seen.
 */
final class Suite extends Lab.Step {
  private static final int REPEATS = 3;

  private final String bundle;
  private final String numbers;
  private final String kernels;
  private final String launches;
  private final List<String> titles = new ArrayList<>();
  private final List<Double> allowed = new ArrayList<>();
  private final Map<String, String> findings = new LinkedHashMap<>();

  Suite(String[] row) {
    super("suite", row[1]);
    bundle = row[2];
    numbers = row[3];
    kernels = row[4];
    launches = row[5];
  }

  /** The case of the next output, and the largest error that it may have. */
  void add(String title, double error) {
    titles.add(title);
    allowed.add(error);
  }

  @Override
  Json about(String status) {
    return super.about(status)
        .put("cases", titles.size())
        .raw("kernels", kernels)
        .raw("launches", launches);
  }

  @Override
  Json run(Lab.Contents contents, Options options) throws IOException {
    findings.clear();
    ByteBuffer all = contents.read(numbers).order(ByteOrder.LITTLE_ENDIAN);
    try (Model model = contents.load(bundle, options)) {
      ByteBuffer[] inputs = cut(all, model.inputs());
      ByteBuffer[] expected = cut(all, model.outputs());
      ByteBuffer[] others = moved(inputs);
      ByteBuffer[] first = compute(model, inputs);
      for (int i = 0; i < first.length; i++) {
        judge(i, model.outputs().get(i), first[i].asFloatBuffer(), expected[i].asFloatBuffer());
      }
      ByteBuffer[] other = compute(model, others);
      for (int repeat = 0; repeat < REPEATS; repeat++) {
        compare(first, compute(model, inputs), true, "gives other numbers from run to run");
        compare(other, compute(model, others), true, "gives other numbers from run to run");
      }
      compare(first, other, false, "gives the numbers of an earlier run, for other inputs too");
    }
    Json about = about(findings.isEmpty() ? "right" : "wrong").put("text", "");
    return about.list("findings", findings.values());
  }

  private static ByteBuffer[] cut(ByteBuffer all, List<Tensor> tensors) {
    ByteBuffer[] parts = new ByteBuffer[tensors.size()];
    for (int i = 0; i < parts.length; i++) {
      int end = all.position() + (int) tensors.get(i).bytes();
      all.limit(end);
      parts[i] = all.slice().order(ByteOrder.LITTLE_ENDIAN);
      all.limit(all.capacity()).position(end);
    }
    return parts;
  }

  /** Other numbers, of which every operator makes others; none of them leaves its range. */
  private static ByteBuffer[] moved(ByteBuffer[] inputs) {
    ByteBuffer[] made = new ByteBuffer[inputs.length];
    for (int i = 0; i < made.length; i++) {
      made[i] = ByteBuffer.allocateDirect(inputs[i].capacity()).order(ByteOrder.LITTLE_ENDIAN);
      for (int at = 0; at < inputs[i].capacity(); at += Float.BYTES) {
        made[i].putFloat(at, 0.5f * inputs[i].getFloat(at) + 0.25f);
      }
    }
    return made;
  }

  private static ByteBuffer[] compute(Model model, ByteBuffer[] inputs) {
    List<ByteBuffer> outputs = new ArrayList<>();
    for (Tensor output : model.outputs()) {
      outputs.add(output.allocate());
    }
    ByteBuffer[] made = outputs.toArray(new ByteBuffer[0]);
    model.run(inputs, made);
    return made;
  }

  private void judge(int index, Tensor output, java.nio.FloatBuffer seen, java.nio.FloatBuffer right) {
    for (int at = 0; at < right.limit(); at++) {
      double error = Math.abs((double) seen.get(at) - right.get(at));
      if (!(error <= allowed.get(index))) { // whatever bits a device gives
        String where = "element " + at + " of " + Arrays.toString(output.shape());
        find(index, "is wrong at " + where + ": seen " + seen.get(at) + ", expected " + right.get(at));
        return;
      }
    }
  }

  private void compare(ByteBuffer[] one, ByteBuffer[] two, boolean areAlike, String otherwise) {
    for (int i = 0; i < one.length; i++) {
      if (one[i].equals(two[i]) != areAlike) {
        find(i, otherwise);
      }
    }
  }

  /** Keeps the first of a case. */
  private void find(int index, String what) {
    String title = titles.get(index);
    String text = title + " (" + name + ") " + what;
    Json finding = new Json().put("case", title).put("suite", name).put("text", text);
    findings.putIfAbsent(title, finding.raw("helps", "[]").toString());
  }
}
