import android.os.CancellationSignal;
import android.os.OperationCanceledException;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.adrenoc.AdrenocException;
import org.adrenoc.Model;
import org.adrenoc.Tensor;

/** Runs that are cancelled: OPENCL BUNDLE; the model runs for a while. */
final class Cancels {
  private static final Map<String, ByteBuffer> inputs = new HashMap<>();
  private static Map<String, ByteBuffer> expected;
  private static double wholeMs;

  public static void main(String[] words) throws Exception {
    File bundle = new File(words[1]);
    try (Model whole = Model.fromFile(bundle, Expect.options(words[0]).cancelWithin(0))) {
      for (Tensor tensor : whole.inputs()) {
        inputs.put(tensor.name(), tensor.allocate());
      }
      expected = whole.run(inputs);
      whole.run(inputs);
      wholeMs = whole.times().computeMs;
      whole.cancel();
      Expect.that(whole.run(inputs).equals(expected), "who cancels means no later call");
    }
    cancelLoads(bundle, words[0]);
    int pieceMs = Math.max(1, (int) (wholeMs / 20));
    try (Model model = Model.fromFile(bundle, Expect.options(words[0]).cancelWithin(pieceMs))) {
      cancelAll(model);
      cancelBySignal(model);
      cancelFutures(model);
      cancelWhileClosing(model);
    }
    Expect.words(
        Expect.thrown(
            AdrenocException.BadArgument.class, () -> Expect.options("").cancelWithin(-1)),
        "cancelWithin is -1");
  }

  private static void cancelLoads(File bundle, String opencl) {
    CancellationSignal before = new CancellationSignal();
    before.cancel();
    Expect.thrown(
        OperationCanceledException.class,
        () -> Model.fromFile(bundle, Expect.options(opencl).cancelLoadBy(before)));
    CancellationSignal during = new CancellationSignal();
    later(1, during::cancel);
    try (Model model = Model.fromFile(bundle, Expect.options(opencl).cancelLoadBy(during))) {
      Expect.that(model.run(inputs).equals(expected), "it was loaded first");
    } catch (OperationCanceledException soon) {
      // It ended on its way.
    }
    CancellationSignal never = new CancellationSignal();
    try (Model model = Model.fromFile(bundle, Expect.options(opencl).cancelLoadBy(never))) {
      Expect.that(model.run(inputs).equals(expected), "nobody cancels");
    }
  }

  /** Does it so long after now. */
  private static Thread later(double ms, Runnable deed) {
    Thread thread =
        new Thread(
            () -> {
              try {
                Thread.sleep((long) ms);
              } catch (InterruptedException error) {
                throw new AssertionError(error);
              }
              deed.run();
            });
    thread.start();
    return thread;
  }

  /** Cancels from then on, until it is interrupted: a busy machine begins the call later. */
  private static Thread cancelFrom(double ms, Model model) {
    Thread thread =
        new Thread(
            () -> {
              try {
                Thread.sleep((long) ms);
                while (true) {
                  model.cancel();
                  Thread.sleep(1);
                }
              } catch (InterruptedException ended) {
                // What was to be cancelled has ended.
              }
            });
    thread.setDaemon(true); // a test that fails ends, too
    thread.start();
    return thread;
  }

  private static void expectRight(Model model) {
    Expect.that(model.run(inputs).equals(expected), "the next run is right");
  }

  private static void cancelAll(Model model) throws Exception {
    for (int i = 0; i < 3; i++) {
      Thread other = cancelFrom(wholeMs * i / 16, model);
      Expect.words(
          Expect.thrown(AdrenocException.Cancelled.class, () -> model.run(inputs)), "cancelled");
      other.interrupt();
      other.join();
      expectRight(model);
    }
  }

  private static void cancelBySignal(Model model) throws Exception {
    CancellationSignal signal = new CancellationSignal();
    Expect.that(model.run(inputs, signal).equals(expected), "nobody cancels");
    Expect.that(model.run(inputs, null).equals(expected), "there is no signal");
    Thread other = later(wholeMs / 4, signal::cancel);
    Expect.thrown(OperationCanceledException.class, () -> model.run(inputs, signal));
    other.join();
    long runs = model.times().runs;
    Expect.thrown(OperationCanceledException.class, () -> model.run(inputs, signal));
    Expect.that(model.times().runs == runs, "a signal that was given leaves the run out");
    expectRight(model);
    // Somebody else's cancel is no signal's.
    Thread all = cancelFrom(0, model);
    Expect.thrown(
        AdrenocException.Cancelled.class, () -> model.run(inputs, new CancellationSignal()));
    all.interrupt();
    all.join();
  }

  /** Of three futures the one in the middle is cancelled, at any time: the others are right. */
  private static void cancelFutures(Model model) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(3);
    for (int i = 0; i < 12; i++) {
      CompletableFuture<Map<String, ByteBuffer>> first = model.runAsync(inputs, threads);
      CompletableFuture<Map<String, ByteBuffer>> middle = model.runAsync(inputs, threads);
      CompletableFuture<Map<String, ByteBuffer>> last = model.runAsync(inputs, threads);
      Thread other = later(wholeMs * i / 4, () -> middle.cancel(true));
      Expect.that(first.get().equals(expected), "the first is right");
      Expect.that(last.get().equals(expected), "the last is right");
      other.join();
      try {
        Expect.that(middle.get().equals(expected), "it ended before it was cancelled");
      } catch (CancellationException error) {
        Expect.that(middle.isCancelled(), "it was cancelled");
      }
    }
    threads.shutdown();
    expectRight(model);
  }

  /** Who closes waits for a run that goes on; cancelling it ends the wait. */
  private static void cancelWhileClosing(Model model) throws Exception {
    Thread run =
        later(0, () -> Expect.thrown(AdrenocException.Cancelled.class, () -> runForever(model)));
    Thread.sleep((long) (2 * wholeMs) + 20);
    Thread close = later(0, model::close);
    Thread.sleep(20);
    Expect.that(close.isAlive(), "it waits for the run");
    model.cancel();
    close.join(60_000);
    run.join(60_000);
    Expect.that(!close.isAlive() && !run.isAlive(), "both end");
    model.cancel();
    Expect.thrown(AdrenocException.Closed.class, () -> model.run(inputs));
  }

  private static void runForever(Model model) {
    model.runRepeatedly(1_000_000);
  }
}
