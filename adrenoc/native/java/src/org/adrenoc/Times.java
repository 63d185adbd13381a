package org.adrenoc;

/** Milliseconds of wall clock: of the load, and of the last run. */
public final class Times {
  /** Opening and checking files. */
  public final double openMs;

  /** Moving the constants to the device. */
  public final double constantsMs;

  /** Building kernels, which goes on while constants move: this holds both. */
  public final double buildMs;

  /** Of the last run: moving inputs. */
  public final double uploadMs;

  /** Of the last run: computing. */
  public final double computeMs;

  /** Of the last run: moving outputs. */
  public final double downloadMs;

  /** How often the model ran. */
  public final long runs;

  Times(double[] values) {
    openMs = values[0];
    constantsMs = values[1];
    buildMs = values[2];
    uploadMs = values[3];
    computeMs = values[4];
    downloadMs = values[5];
    runs = (long) values[6];
  }
}
