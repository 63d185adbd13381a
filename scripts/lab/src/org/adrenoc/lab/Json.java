package org.adrenoc.lab;

/** An object of JSON on one line; what is written once stays. */
final class Json {
  private final StringBuilder text = new StringBuilder("{");

  Json put(String key, String value) {
    return raw(key, quote(value));
  }

  /** No number where it is none, as 0 / 0. */
  Json put(String key, double value) {
    boolean isPlain = !Double.isNaN(value) && !Double.isInfinite(value);
    return raw(key, isPlain ? Double.toString(value) : "null");
  }

  Json put(String key, long value) {
    return raw(key, Long.toString(value));
  }

  /** What is JSON already. */
  Json raw(String key, String json) {
    text.append(text.length() > 1 ? "," : "").append(quote(key)).append(':').append(json);
    return this;
  }

  Json list(String key, Iterable<String> objects) {
    StringBuilder joined = new StringBuilder("[");
    for (String object : objects) {
      if (object == null) {
        continue;
      }
      joined.append(joined.length() > 1 ? "," : "").append(object);
    }
    return raw(key, joined.append(']').toString());
  }

  static String quote(String value) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char letter : value.toCharArray()) {
      if (letter == '"' || letter == '\\') {
        quoted.append('\\').append(letter);
      } else if (letter < ' ' || letter > '~') {
        quoted.append(String.format("\\u%04x", (int) letter));
      } else {
        quoted.append(letter);
      }
    }
    return quoted.append('"').toString();
  }

  @Override
  public String toString() {
    return text + "}";
  }
}
