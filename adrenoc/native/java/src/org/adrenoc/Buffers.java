package org.adrenoc;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** What the native half may read and write. */
final class Buffers {
  private Buffers() {}

  /** The buffer itself where its memory does not move, else a copy of what remains of it. */
  static ByteBuffer makeDirect(ByteBuffer buffer) {
    if (buffer.isDirect()) {
      return buffer;
    }
    ByteBuffer copy = ByteBuffer.allocateDirect(buffer.remaining()).order(ByteOrder.nativeOrder());
    copy.put(buffer.duplicate());
    copy.rewind();
    return copy;
  }

  static void checkBindable(ByteBuffer buffer, boolean isWritten) {
    if (!buffer.isDirect()) {
      throw new AdrenocException.BadArgument(
          "the buffer lies in the heap, where it may move: make it with Tensor.allocate()");
    }
    if (isWritten && buffer.isReadOnly()) {
      throw new AdrenocException.BadArgument("the buffer of an output is read-only");
    }
  }

  /** The inputs of a model by name, in its order. */
  static ByteBuffer[] makeDirect(Map<String, ByteBuffer> inputs, List<Tensor> wanted) {
    ByteBuffer[] made = new ByteBuffer[wanted.size()];
    Set<String> names = new LinkedHashSet<>();
    for (Tensor tensor : wanted) {
      names.add(tensor.name());
    }
    if (!inputs.keySet().equals(names)) {
      throw new AdrenocException.BadArgument(
          "inputs are " + inputs.keySet() + ", expected " + names);
    }
    for (int i = 0; i < made.length; i++) {
      made[i] = makeDirect(inputs.get(wanted.get(i).name()));
    }
    return made;
  }
}
