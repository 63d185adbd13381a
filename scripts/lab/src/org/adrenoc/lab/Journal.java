package org.adrenoc.lab;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.LinkedHashMap;
import java.util.Map;

/** What came of each step, in a file: a step that ended the process is known at the next start. */
final class Journal {
  private final File file;
  private final String version;
  private final Map<String, String> ended = new LinkedHashMap<>();

  /** What it holds of another version of the app is left. */
  Journal(File file, String version) throws IOException {
    this.file = file;
    this.version = version;
    String[] lines = {};
    if (file.exists()) {
      lines = new String(Files.readAllBytes(file.toPath()), StandardCharsets.UTF_8).split("\n");
    }
    if (lines.length == 0 || !lines[0].equals(version)) {
      clear();
      return;
    }
    for (int i = 1; i < lines.length; i++) {
      String[] parts = lines[i].split("\t", 2);
      ended.put(parts[0], parts.length > 1 ? parts[1] : null);
    }
  }

  /** Whether the step was begun in an earlier process, which did not come to its end. */
  boolean endedTheApp(String step) {
    return ended.containsKey(step) && ended.get(step) == null;
  }

  /** What came of it; null where nothing did yet. */
  String resultOf(String step) {
    return ended.get(step);
  }

  void begin(String step) throws IOException {
    append(step);
  }

  void end(String step, String result) throws IOException {
    append(step + "\t" + result);
    ended.put(step, result);
  }

  /** Forgets all, for another time. */
  void clear() throws IOException {
    ended.clear();
    Files.write(file.toPath(), (version + "\n").getBytes(StandardCharsets.UTF_8));
  }

  private void append(String line) throws IOException {
    try (FileOutputStream to = new FileOutputStream(file, true)) {
      to.write((line + "\n").getBytes(StandardCharsets.UTF_8));
      to.getFD().sync();
    }
  }
}
