package org.adrenoc.lab;

import java.util.Arrays;
import org.adrenoc.Model;
import org.adrenoc.Options;

/** What one more launch takes: of two chains of the same small kernel, unlike in length, by turns. */
final class Probe extends Lab.Step {
  private static final int ROUNDS = 7;
  private static final int RUNS = 20;

  private final String[] row;

  Probe(String[] row) {
    super("probe", row[1]);
    this.row = row;
  }

  @Override
  Json run(Lab.Contents contents, Options options) {
    double[] us = new double[ROUNDS];
    int more = Integer.parseInt(row[5]) - Integer.parseInt(row[4]);
    try (Model few = open(contents, row[2], options); Model many = open(contents, row[3], options)) {
      for (int round = 0; round < ROUNDS; round++) {
        double ms = many.runRepeatedly(RUNS) - few.runRepeatedly(RUNS);
        us[round] = ms * 1e3 / more;
      }
    }
    return about("right").raw("us", Arrays.toString(us)).raw("bytes", row[6]);
  }

  private static Model open(Lab.Contents contents, String bundle, Options options) {
    Model model = contents.load(bundle, options);
    for (int i = 0; i < model.inputs().size(); i++) {
      model.bindInput(i, model.inputs().get(i).allocate());
    }
    model.runRepeatedly(RUNS); // what is built and recorded at first
    return model;
  }
}
