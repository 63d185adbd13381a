package org.adrenoc.lab;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
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
  private final List<Suite> suites = new ArrayList<>();
  private final List<Probe> probes = new ArrayList<>();
  private final List<Network> networks = new ArrayList<>();
  private final List<String> beside = new ArrayList<>();

  /** `system` is what the report says of the phone: no word of its owner's. */
  public Lab(Contents contents, Options options, File journal, String system) throws IOException {
    this.contents = contents;
    this.options = options;
    this.system = system;
    String plan = text("lab.tsv");
    for (String line : plan.split("\n")) {
      String[] row = line.split("\t");
      switch (row[0]) {
        case "suite":
          suites.add(new Suite(row));
          break;
        case "case":
          suites.get(suites.size() - 1).add(row[1], Double.parseDouble(row[2]));
          break;
        case "probe":
          probes.add(new Probe(row));
          break;
        case "network":
          networks.add(new Network(row));
          break;
        default:
          Json time = new Json().put("name", row[1]).put("gpu", row[2]);
          beside.add(time.put("whose", row[3]).raw("figure", row[4]).toString());
      }
    }
    this.journal = new Journal(journal, Model.runtimeVersion() + " " + plan.hashCode());
  }

  /** Does what is not done yet. */
  public void run(Listener listener) throws IOException {
    step(DEVICE, listener, new Json(), () -> new Json().raw("facts", Model.describeDevice(options)));
    if (!hasDevice()) {
      return;
    }
    for (Suite suite : suites) {
      Json failed = suite.about("failed").raw("findings", "[]");
      step(suite.name, listener, failed, () -> suite.run(contents, options));
    }
    for (Probe probe : probes) {
      step(probe.name, listener, probe.about("failed"), () -> probe.run(contents, options));
    }
    for (Network network : networks) {
      step(network.name, listener, network.about("failed"), () -> network.run(contents, options));
    }
  }

  private interface Work {
    Json run() throws IOException;
  }

  private void step(String name, Listener listener, Json failed, Work work) throws IOException {
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
    return !suiteResults().contains(null)
        && !probeResults().contains(null)
        && !networkResults().contains(null);
  }

  /** The one file: figures, words of device and driver, findings. */
  public String report() {
    String device = journal.resultOf(DEVICE);
    return new Json()
            .put("adrenoc_lab", 1)
            .put("runtime", Model.runtimeVersion())
            .put("system", system)
            .raw("device", device == null ? "{}" : device)
            .list("suites", suiteResults())
            .list("probes", probeResults())
            .list("networks", networkResults())
            .list("beside", beside)
            .raw("is_whole", String.valueOf(isWhole()))
        + "\n";
  }

  /** Null for what has not come yet. */
  private List<String> suiteResults() {
    List<String> found = new ArrayList<>();
    suites.forEach(suite -> found.add(journal.resultOf(suite.name)));
    return found;
  }

  private List<String> probeResults() {
    List<String> found = new ArrayList<>();
    probes.forEach(probe -> found.add(journal.resultOf(probe.name)));
    return found;
  }

  private List<String> networkResults() {
    List<String> found = new ArrayList<>();
    networks.forEach(network -> found.add(journal.resultOf(network.name)));
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
