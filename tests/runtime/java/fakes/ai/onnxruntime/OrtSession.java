package ai.onnxruntime;

import java.util.List;
import java.util.Map;

/** Tells what it was opened with. */
public final class OrtSession {
  private final String told;

  OrtSession(String told) {
    this.told = told;
  }

  @Override
  public String toString() {
    return told;
  }

  public static class SessionOptions {
    String told = "";

    public void addExecutionProvider(List<OrtEpDevice> devices, Map<String, String> options)
        throws OrtException {
      for (OrtEpDevice device : devices) {
        told += device.getName();
      }
      told += options;
    }
  }
}
