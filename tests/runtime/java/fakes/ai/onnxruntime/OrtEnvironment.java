package ai.onnxruntime;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** With one provider's device for each library that is registered, named as adrenoc's is. */
public final class OrtEnvironment {
  private static final OrtEnvironment ONLY = new OrtEnvironment();
  private final List<String> registered = new ArrayList<>();

  public static OrtEnvironment getEnvironment() {
    return ONLY;
  }

  public void registerExecutionProviderLibrary(String registrationName, String libraryPath)
      throws OrtException {
    registered.add(libraryPath);
  }

  public List<OrtEpDevice> getEpDevices() throws OrtException {
    List<OrtEpDevice> devices = new ArrayList<>();
    devices.add(new OrtEpDevice("CPUExecutionProvider"));
    if (!registered.isEmpty()) {
      devices.add(new OrtEpDevice("AdrenocExecutionProvider"));
    }
    return devices;
  }

  public OrtSession createSession(String modelPath, OrtSession.SessionOptions options)
      throws OrtException {
    return new OrtSession(String.join("\n", Arrays.asList(modelPath, options.told, registered + "")));
  }
}
