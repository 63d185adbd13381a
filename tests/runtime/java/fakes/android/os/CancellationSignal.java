package android.os;

/** As Android has it, but for the waiting. */
public final class CancellationSignal {
  private boolean canceled;
  private OnCancelListener listener;

  public synchronized boolean isCanceled() {
    return canceled;
  }

  public void throwIfCanceled() {
    if (isCanceled()) {
      throw new OperationCanceledException();
    }
  }

  public void cancel() {
    OnCancelListener told;
    synchronized (this) {
      canceled = true;
      told = listener;
    }
    if (told != null) {
      told.onCancel();
    }
  }

  public synchronized void setOnCancelListener(OnCancelListener listener) {
    this.listener = listener;
  }

  public interface OnCancelListener {
    void onCancel();
  }
}
