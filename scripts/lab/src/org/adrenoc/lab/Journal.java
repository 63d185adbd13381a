package org.adrenoc.lab;

import java.io.BufferedReader;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
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
    if (!read()) {
      clear();
    }
  }

  private boolean read() throws IOException {
    if (!file.exists()) {
      return false;
    }
    // java.nio.file is newer than the oldest Android that the app is for.
    try (BufferedReader from =
        new BufferedReader(new InputStreamReader(new FileInputStream(file), StandardCharsets.UTF_8))) {
      boolean isOurs = version.equals(from.readLine());
      for (String line = from.readLine(); isOurs && line != null; line = from.readLine()) {
        String[] parts = line.split("\t", 2);
        ended.put(parts[0], parts.length > 1 ? parts[1] : null);
      }
      return isOurs;
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
    write(step, true);
  }

  void end(String step, String result) throws IOException {
    write(step + "\t" + result, true);
    ended.put(step, result);
  }

  /** Forgets all, for another time. */
  void clear() throws IOException {
    ended.clear();
    write(version, false);
  }

  private void write(String line, boolean isMore) throws IOException {
    try (FileOutputStream to = new FileOutputStream(file, isMore)) {
      to.write((line + "\n").getBytes(StandardCharsets.UTF_8));
      to.getFD().sync();
    }
  }
}
