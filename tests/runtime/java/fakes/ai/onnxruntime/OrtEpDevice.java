package ai.onnxruntime;

public final class OrtEpDevice {
  private final String name;

  OrtEpDevice(String name) {
    this.name = name;
  }

  public String getName() {
    return name;
  }
}
