package org.adrenoc.lab;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.adrenoc.AdrenocException;
import org.adrenoc.Model;
import org.adrenoc.Options;

/**
 * All that the app does, without its screen: a JVM runs it as a phone does. What it has lies in
 * `lab.tsv`: suites with their cases, probes, networks, and the times to stand beside theirs.
 */
public final class Lab {
  /** What the app holds, by name. */
  public interface Contents {
    Model load(String name, Options options);

    /** In memory that the device can read: a direct buffer. */
    ByteBuffer read(String name) throws IOException;
  }

  /** One thing to do; what fails throws, and `about` says of what. */
  abstract static class Step {
    final String name;
    private final String kind;

    Step(String kind, String name) {
      this.kind = kind;
      this.name = name;
    }

    Json about(String status) {
      return new Json().put(kind, name).put("status", status);
    }

    abstract Json run(Contents contents, Options options) throws IOException;
  }

  /** Is told of each step before it begins. */
  public interface Listener {
    void onStep(String step);
  }

  private static final String DEVICE = "device";
  private static final String ENDED =
      "the app ended while this ran, or was closed: the driver crashed, or did not come back";
  private static final String NO_DEVICE =
      ". The app cannot run anything here. Apps see OpenCL only where the maker of the phone lists"
          + " the library for them; adb may reach the driver all the same: adrenoc device verify"
          + " --on adb";

  private final Contents contents;
  private final Options options;
  private final Journal journal;
  private final String system;
  // By what the report calls them.
  private final Map<String, List<Step>> steps = new LinkedHashMap<>();
  private final List<String> beside = new ArrayList<>();

  /** `system` is what the report says of the phone: no word of its owner's. */
  public Lab(Contents contents, Options options, File journal, String system) throws IOException {
    this.contents = contents;
    this.options = options;
    this.system = system;
    String plan = text("lab.tsv");
    Suite suite = null;
    for (String line : plan.split("\n")) {
      String[] row = line.split("\t");
      switch (row[0]) {
        case "suite":
          suite = new Suite(row);
          add("suites", suite);
          break;
        case "case":
          suite.add(row[1], Double.parseDouble(row[2]));
          break;
        case "probe":
          add("probes", new Probe(row));
          break;
        case "network":
          add("networks", new Network(row));
          break;
        case "decoder":
          add("decoders", new Decoder(row));
          break;
        default:
          Json time = new Json().put("name", row[1]).put("gpu", row[2]);
          beside.add(time.put("whose", row[3]).raw("figure", row[4]).toString());
      }
    }
    this.journal = new Journal(journal, Model.runtimeVersion() + " " + plan.hashCode());
  }

  private void add(String kind, Step step) {
    steps.computeIfAbsent(kind, key -> new ArrayList<>()).add(step);
  }

  /** Does what is not done yet. */
  public void run(Listener listener) throws IOException {
    take(DEVICE, listener, new Json(), () -> new Json().raw("facts", Model.describeDevice(options)));
    if (!hasDevice()) {
      return;
    }
    for (List<Step> some : steps.values()) {
      for (Step one : some) {
        take(one.name, listener, one.about("failed"), () -> one.run(contents, options));
      }
    }
  }

  private interface Work {
    Json run() throws IOException;
  }

  private void take(String name, Listener listener, Json failed, Work work) throws IOException {
    if (journal.resultOf(name) != null) {
      return;
    }
    if (journal.endedTheApp(name)) {
      journal.end(name, failed.put("text", ENDED).toString());
      return;
    }
    listener.onStep(name);
    journal.begin(name);
    String result;
    try {
      result = work.run().toString();
    } catch (AdrenocException.NoDevice error) {
      result = failed.put("text", error.getMessage() + NO_DEVICE).toString();
    } catch (AdrenocException error) {
      result = failed.put("text", String.valueOf(error.getMessage())).toString();
    }
    journal.end(name, result);
  }

  /** Forgets what was done. */
  public void clear() throws IOException {
    journal.clear();
  }

  /** Whether nothing is left to do; true, too, where nothing can be done. */
  public boolean isDone() {
    return isWhole() || (journal.resultOf(DEVICE) != null && !hasDevice());
  }

  private boolean hasDevice() {
    return journal.resultOf(DEVICE).contains("\"facts\"");
  }

  private boolean isWhole() {
    return steps.keySet().stream().noneMatch(kind -> results(kind).contains(null));
  }

  /** The one file: figures, words of device and driver, findings. */
  public String report() {
    String device = journal.resultOf(DEVICE);
    Json report =
        new Json()
            .put("adrenoc_lab", 1)
            .put("runtime", Model.runtimeVersion())
            .put("system", system)
            .raw("device", device == null ? "{}" : device);
    steps.keySet().forEach(kind -> report.list(kind, results(kind)));
    return report.list("beside", beside).raw("is_whole", String.valueOf(isWhole())) + "\n";
  }

  /** Null for what has not come yet. */
  private List<String> results(String kind) {
    List<String> found = new ArrayList<>();
    steps.get(kind).forEach(one -> found.add(journal.resultOf(one.name)));
    return found;
  }

  /** The page of what there is so far, with a sentence on what goes on. */
  public String page(String now) throws IOException {
    Json data = new Json().put("now", now).raw("report", report());
    return text("page.html").replace("\"DATA\"", data.toString().replace("<", "\\u003c"));
  }

  private String text(String name) throws IOException {
    ByteBuffer held = contents.read(name);
    byte[] bytes = new byte[held.remaining()];
    held.get(bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
