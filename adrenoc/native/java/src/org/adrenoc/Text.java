package org.adrenoc;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Texts as the native half takes and gives them: UTF-8, for C with a zero at the end. */
final class Text {
  private Text() {}

  /** Null stays null. */
  static byte[] encode(String text) {
    if (text == null) {
      return null;
    }
    if (text.indexOf('\0') >= 0) {
      throw new AdrenocException.BadArgument("a text holds the character 0: " + text);
    }
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    return Arrays.copyOf(bytes, bytes.length + 1);
  }

  static String decode(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
