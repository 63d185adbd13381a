package android.os;

public final class CancellationSignal {
  public boolean isCanceled() {
    throw new UnsupportedOperationException();
  }

  public void throwIfCanceled() {
    throw new UnsupportedOperationException();
  }

  public void setOnCancelListener(OnCancelListener listener) {
    throw new UnsupportedOperationException();
  }

  public interface OnCancelListener {
    void onCancel();
  }
}
