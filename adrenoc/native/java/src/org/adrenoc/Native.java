package org.adrenoc;

import java.nio.ByteBuffer;

/** The native half, libadrenoc_jni.so: a function of the C API each, which throws what fails. */
final class Native {
  static {
    System.loadLibrary("adrenoc_jni");
  }

  private Native() {}

  // Loading: `texts` and `numbers` are those of Options; a cancellation of 0 is none.
  static native long loadFile(byte[] path, byte[][] texts, int[] numbers, long cancellation);

  static native long loadDescriptor(
      int descriptor, long offset, long bytes, byte[][] texts, int[] numbers, long cancellation);

  static native long loadBuffer(
      ByteBuffer data, int from, int bytes, byte[][] texts, int[] numbers, long cancellation);

  static native byte[] describeDevice(byte[][] texts, int[] numbers);

  static native long makeCancellation();

  static native void cancelLoad(long cancellation);

  static native void freeCancellation(long cancellation);

  static native void free(long model);

  // What there is; `what` is one of the constants.
  static final int NAME = 0;
  static final int DEVICE = 1;
  static final int NOTES = 2;
  static final int VERSION = 3;

  static native byte[] text(long model, int what);

  static native int buckets(long model);

  static native int signatures(long model);

  static native byte[] signature(long model, int index);

  static native void setSignature(long model, byte[] name);

  static native int count(long model, boolean isInput);

  /** A bucket of -1 is the chosen one. */
  static native Tensor tensor(long model, int bucket, boolean isInput, int index);

  static native double[] times(long model);

  // Runs.
  static native void chooseShapes(long model, long[][] shapes);

  /** No buffer: the output is not moved. */
  static native void bind(
      long model, boolean isInput, int index, ByteBuffer buffer, int from, int bytes);

  static native void bindHardware(long model, boolean isInput, int index, Object buffer);

  static native void run(long model);

  /** Begins a run, which finish() waits for; cancel() means it from here on. */
  static native void start(long model);

  static native void finish(long model);

  static native void cancel(long model);

  static native double runRepeatedly(long model, int runs);

  static native void verify(long model);

  static native void trim(long model);

  // Memory of all models; what the array holds, DeviceMemory.java says.
  static native void setBudget(long bytes);

  static native void trimPart(int part);

  static native long[] memory();

  // How models leave the device to others.
  static native boolean pause(long timeoutMs);

  static native void resume();

  static native void setSubmissionLimit(double ms);

  /** Pictures; what the arrays hold, ImageInput.java says. */
  static native void writePixels(
      ByteBuffer[] planes, int[] froms, int[] bytes, int[] facts, int[] how, float[] scaling,
      ByteBuffer output, int to);

  // Tokens; `drawing` is {temperature, top p, min p, penalties of repetition, presence, frequency}.
  static native void generate(
      long model, long[] prompt, int most, float[] drawing, int topK, long seed, long[] ends,
      long[] biased, float[] bias, OnToken listener);

  // Text, the same; without roles it goes on with the one content.
  static native void answer(
      long model, byte[][] roles, byte[][] contents, int most, float[] drawing, int topK,
      long seed, long[] ends, long[] biased, float[] bias, byte[][] stops,
      OnPiece listener);

  // As `drawing` above, and behind it top k.
  static native float[] usual(long model);

  static native long[] encode(long model, byte[] text, boolean withSpecial);

  static native byte[] decode(long model, long[] tokens);

  static native void stop(long model);

  static native long context(long model, boolean ofRows);

  static native void rewind(long model, long tokens);

  static native byte[] saveContext(long model);

  static native void restoreContext(long model, byte[] saved);
}
