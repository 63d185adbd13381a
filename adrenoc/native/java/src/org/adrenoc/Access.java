package org.adrenoc;

import java.util.concurrent.locks.ReentrantReadWriteLock;

/**
 * The native model, and who may use it: calls enter and leave, and closing waits for those that are
 * inside. A call from within another, out of a token's listener, would wait for itself: refused.
 */
final class Access {
  private final ReentrantReadWriteLock lock = new ReentrantReadWriteLock();
  private volatile boolean closing;
  private long handle;

  Access(long handle) {
    this.handle = handle;
  }

  /** What is done with the native model. */
  interface Call<T> {
    T on(long model);
  }

  /** The same, where nothing comes of it. */
  interface Deed {
    void on(long model);
  }

  <T> T call(Call<T> call) {
    if (lock.getReadHoldCount() > 0) {
      throw new IllegalStateException(
          "a listener of tokens called the model that tells it tokens: only stop() may be called");
    }
    long model = enter();
    try {
      return call.on(model);
    } finally {
      lock.readLock().unlock();
    }
  }

  void apply(Deed deed) {
    call(
        model -> {
          deed.on(model);
          return null;
        });
  }

  /** As {@link #call}, with what is bound to the model for itself: one thread after the other. */
  <T> T callInTurn(Call<T> call) {
    // Always this lock after that of `call`: two orders would wait for each other.
    return call(
        model -> {
          synchronized (this) {
            return call.on(model);
          }
        });
  }

  void applyInTurn(Deed deed) {
    callInTurn(
        model -> {
          deed.on(model);
          return null;
        });
  }

  /** Out of a token's listener too; nothing once the model is closed. */
  void applyAnywhere(Deed deed) {
    // Whoever closes may wait for just this, so that it does not stand behind them.
    if (!lock.readLock().tryLock()) {
      return;
    }
    try {
      if (handle != 0) {
        deed.on(handle);
      }
    } finally {
      lock.readLock().unlock();
    }
  }

  /** Whether somebody waits for the calls inside to end. */
  boolean isClosing() {
    return closing;
  }

  /** Once; later calls do nothing. */
  void close() {
    if (lock.getReadHoldCount() > 0) {
      throw new IllegalStateException("a listener of tokens closed the model that tells it tokens");
    }
    closing = true;
    lock.writeLock().lock();
    try {
      if (handle != 0) {
        Native.free(handle);
        handle = 0;
      }
    } finally {
      lock.writeLock().unlock();
    }
  }

  private long enter() {
    lock.readLock().lock();
    if (handle == 0 || closing) {
      lock.readLock().unlock();
      throw new AdrenocException.Closed("the model is closed");
    }
    return handle;
  }
}
