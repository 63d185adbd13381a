package org.adrenoc;

import android.os.CancellationSignal;

/** A load that a signal of the app ends. */
final class CancellableLoad {
  private long cancellation; // that the load heeds; 0 afterwards

  private CancellableLoad() {}

  /** What loads, by the native cancellation that it is given, 0 where there is none. */
  interface Load {
    long by(long cancellation);
  }

  /** The model that is loaded, unless the signal comes first. */
  static long heed(CancellationSignal signal, Load load) {
    return signal == null ? load.by(0) : new CancellableLoad().run(signal, load);
  }

  private long run(CancellationSignal signal, Load load) {
    cancellation = Native.makeCancellation();
    try {
      signal.setOnCancelListener(this::cancel);
      signal.throwIfCanceled();
      return load.by(cancellation);
    } catch (AdrenocException.Cancelled error) {
      signal.throwIfCanceled();
      throw error;
    } finally {
      signal.setOnCancelListener(null);
      end();
    }
  }

  private synchronized void cancel() {
    if (cancellation != 0) {
      Native.cancelLoad(cancellation);
    }
  }

  private synchronized void end() {
    Native.freeCancellation(cancellation);
    cancellation = 0;
  }
}
