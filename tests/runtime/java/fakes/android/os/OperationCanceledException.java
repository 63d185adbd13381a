package android.os;

public class OperationCanceledException extends RuntimeException {
  private static final long serialVersionUID = 1;
}
