package org.adrenoc;

import android.os.CancellationSignal;

/** A run that may be cancelled before its turn and while it computes, and no other run with it. */
final class CancellableRun {
  private long model; // that computes it; 0 before and afterwards
  private boolean isCancelled;

  /** Computes what is bound; in the model's turn. */
  void compute(long onModel) {
    begin(onModel);
    try {
      Native.finish(onModel);
    } finally {
      end();
    }
  }

  synchronized void cancel() {
    isCancelled = true;
    if (model != 0) {
      Native.cancel(model);
    }
  }

  /** Heeds the signal, if there is one, while the call goes on. */
  <T> T heed(CancellationSignal signal, Access.Call<T> call, Access access) {
    if (signal == null) {
      return access.callInTurn(call);
    }
    signal.setOnCancelListener(this::cancel);
    try {
      signal.throwIfCanceled();
      return access.callInTurn(call);
    } catch (AdrenocException.Cancelled error) {
      signal.throwIfCanceled();
      throw error; // by Model.cancel
    } finally {
      signal.setOnCancelListener(null);
    }
  }

  private synchronized void begin(long onModel) {
    if (isCancelled) {
      throw new AdrenocException.Cancelled("the run was cancelled before its turn");
    }
    Native.start(onModel);
    // Who cancels from here on means the run that was started.
    model = onModel;
  }

  private synchronized void end() {
    model = 0;
  }
}
