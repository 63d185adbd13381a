package org.adrenoc;

import java.nio.charset.StandardCharsets;

/**
 * What went wrong, in the runtime's words. Each way to fail is a class of its own, so that an app
 * catches what it can do something about: another device after {@link NoDevice} or {@link
 * WrongResults}, a new download after {@link BadBundle}, fewer tokens after {@link ContextFull}.
 */
public class AdrenocException extends RuntimeException {
  private static final long serialVersionUID = 1;

  AdrenocException(String message) {
    super(message);
  }

  /** An index, a size, a shape or a name that does not fit. */
  public static final class BadArgument extends AdrenocException {
    private static final long serialVersionUID = 1;

    BadArgument(String message) {
      super(message);
    }
  }

  /** No such file or asset, or it cannot be read. */
  public static final class NotFound extends AdrenocException {
    private static final long serialVersionUID = 1;

    NotFound(String message) {
      super(message);
    }
  }

  /** The bundle is damaged, of another version, or not for this machine. */
  public static final class BadBundle extends AdrenocException {
    private static final long serialVersionUID = 1;

    BadBundle(String message) {
      super(message);
    }
  }

  /** The phone offers no OpenCL, or no device of the name that was asked for. */
  public static final class NoDevice extends AdrenocException {
    private static final long serialVersionUID = 1;

    NoDevice(String message) {
      super(message);
    }
  }

  /** The device refused a kernel or a call. */
  public static final class DeviceFailed extends AdrenocException {
    private static final long serialVersionUID = 1;

    DeviceFailed(String message) {
      super(message);
    }
  }

  /** Memory of the app or of the device has run out. */
  public static final class OutOfMemory extends AdrenocException {
    private static final long serialVersionUID = 1;

    OutOfMemory(String message) {
      super(message);
    }
  }

  /** A defect of the runtime. */
  public static final class Internal extends AdrenocException {
    private static final long serialVersionUID = 1;

    Internal(String message) {
      super(message);
    }
  }

  /** A run that was started goes on. */
  public static final class NotReady extends AdrenocException {
    private static final long serialVersionUID = 1;

    NotReady(String message) {
      super(message);
    }
  }

  /** The device, the system or the bundle lacks what the call needs. */
  public static final class Unsupported extends AdrenocException {
    private static final long serialVersionUID = 1;

    Unsupported(String message) {
      super(message);
    }
  }

  /** The device computes other numbers than the bundle's proof says. */
  public static final class WrongResults extends AdrenocException {
    private static final long serialVersionUID = 1;

    WrongResults(String message) {
      super(message);
    }
  }

  /** A decoder has no room for more tokens. */
  public static final class ContextFull extends AdrenocException {
    private static final long serialVersionUID = 1;

    ContextFull(String message) {
      super(message);
    }
  }

  /** By {@link Model#cancel}. */
  public static final class Cancelled extends AdrenocException {
    private static final long serialVersionUID = 1;

    Cancelled(String message) {
      super(message);
    }
  }

  /** The model was closed before the call. */
  public static final class Closed extends AdrenocException {
    private static final long serialVersionUID = 1;

    Closed(String message) {
      super(message);
    }
  }

  /** The exception of a status of the C API; called by the native half. */
  static AdrenocException of(int status, byte[] message) {
    String said = new String(message, StandardCharsets.UTF_8);
    switch (status) {
      case 1:
        return new BadArgument(said);
      case 2:
        return new NotFound(said);
      case 3:
        return new BadBundle(said);
      case 4:
        return new NoDevice(said);
      case 5:
        return new DeviceFailed(said);
      case 6:
        return new OutOfMemory(said);
      case 8:
        return new NotReady(said);
      case 9:
        return new Unsupported(said);
      case 10:
        return new WrongResults(said);
      case 11:
        return new ContextFull(said);
      case 12:
        return new Cancelled(said);
      default:
        return new Internal(said);
    }
  }
}
