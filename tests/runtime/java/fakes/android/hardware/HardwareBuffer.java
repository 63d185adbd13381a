package android.hardware;

public final class HardwareBuffer {
  private HardwareBuffer() {}
}
