package org.adrenoc;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** An input or output of a model: dense, row-major, in the byte order of the machine. */
public final class Tensor {
  private final String name;
  private final String type;
  private final long[] shape;
  private final long bytes;

  /** Called by the native half. */
  Tensor(byte[] name, byte[] type, long[] shape, long bytes) {
    this.name = new String(name, StandardCharsets.UTF_8);
    this.type = new String(type, StandardCharsets.UTF_8);
    this.shape = shape;
    this.bytes = bytes;
  }

  /** Its name in the model file. */
  public String name() {
    return name;
  }

  /** Its elements' type: {@code float32}, {@code float16}, {@code uint8}, {@code int64}, ... */
  public String type() {
    return type;
  }

  /** Its extents, the slowest first. */
  public long[] shape() {
    return shape.clone();
  }

  /** How many bytes a buffer for it has. */
  public long bytes() {
    return bytes;
  }

  /** How many elements it has. */
  public long elements() {
    long product = 1;
    for (long extent : shape) {
      product *= extent;
    }
    return product;
  }

  /** A new buffer for it: direct, in the byte order of the machine, all zeros. */
  public ByteBuffer allocate() {
    if (bytes > Integer.MAX_VALUE) {
      throw new AdrenocException.BadArgument(
          name + " has " + bytes + " bytes, expected at most " + Integer.MAX_VALUE + " in a buffer");
    }
    return ByteBuffer.allocateDirect((int) bytes).order(ByteOrder.nativeOrder());
  }

  @Override
  public String toString() {
    return name + " " + type + Arrays.toString(shape);
  }
}
