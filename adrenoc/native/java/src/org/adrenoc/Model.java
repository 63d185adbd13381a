package org.adrenoc;

import android.content.res.AssetFileDescriptor;
import android.content.res.AssetManager;
import android.hardware.HardwareBuffer;
import android.os.CancellationSignal;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;

/**
 * A model that adrenoc compiled, on a device.
 *
 * <pre>
 *   try (Model model = Model.fromAsset(getAssets(), "mobilenet_v2.adrenoc.tar", options)) {
 *     ByteBuffer pixels = model.inputs().get(0).allocate();
 *     ByteBuffer scores = model.outputs().get(0).allocate();
 *     model.bindInput(0, pixels);
 *     model.bindOutput(0, scores);
 *     model.run();
 *   }
 * </pre>
 *
 * Loading builds kernels, a second or more the first time: never on the main thread. Any thread may
 * call any method; calls for one model wait for each other, those for different models do not.
 * What fails throws an {@link AdrenocException}. A model takes memory of the device until it is
 * closed: nobody else closes it.
 */
public final class Model implements AutoCloseable {
  private final Access access;
  private final String name;
  private final String device;
  // What the native half reads and writes must stay; null where nothing is bound.
  private volatile Object[] boundInputs;
  private volatile Object[] boundOutputs;

  private Model(long handle) {
    access = new Access(handle);
    name = Text.decode(Native.text(handle, Native.NAME));
    device = Text.decode(Native.text(handle, Native.DEVICE));
    forgetBound(handle);
  }

  private void forgetBound(long model) {
    boundInputs = new Object[Native.count(model, true)];
    boundOutputs = new Object[Native.count(model, false)];
  }

  /** A bundle's folder, or a tar file of one. */
  public static Model fromFile(File path, Options options) {
    checkOptions(options);
    byte[] place = Text.encode(path.getPath());
    return load(
        options,
        cancellation ->
            Native.loadFile(place, options.texts(), options.numbers(), cancellation));
  }

  /**
   * The tar form in the app's assets. It is mapped from the APK, and takes no heap, where it lies
   * uncompressed: {@code androidResources { noCompress += "tar" }} in build.gradle.kts. Else each
   * load unpacks it to the cache folder, or where Java keeps temporary files, into a file that is
   * gone with the model.
   */
  public static Model fromAsset(AssetManager assets, String name, Options options) {
    checkOptions(options);
    try (AssetFileDescriptor asset = assets.openFd(name)) {
      return fromDescriptor(
          asset.getParcelFileDescriptor().getFd(),
          asset.getStartOffset(),
          asset.getLength(),
          options);
    } catch (IOException error) {
      return fromCompressedAsset(assets, name, options);
    }
  }

  private static Model fromCompressedAsset(AssetManager assets, String name, Options options) {
    try (Unpacked asset = Unpacked.of(assets, name, options.folder())) {
      return fromDescriptor(asset.descriptor(), 0, asset.bytes(), options);
    } catch (IOException error) {
      throw new AdrenocException.NotFound(
          "the asset " + name + " is not there, or cannot be unpacked ("
              + error.getMessage() + "); androidResources { noCompress += \"tar\" }"
              + " in build.gradle.kts leaves it as it is");
    }
  }

  /** The tar form in a part of an open file; the descriptor may be closed afterwards. */
  public static Model fromDescriptor(int descriptor, long offset, long bytes, Options options) {
    checkOptions(options);
    return load(
        options,
        cancellation ->
            Native.loadDescriptor(
                descriptor, offset, bytes, options.texts(), options.numbers(), cancellation));
  }

  /** The tar form in memory: what remains of the buffer, which may be anything afterwards. */
  public static Model fromBuffer(ByteBuffer data, Options options) {
    checkOptions(options);
    ByteBuffer direct = Buffers.makeDirect(data);
    return load(
        options,
        cancellation ->
            Native.loadBuffer(
                direct,
                direct.position(),
                direct.remaining(),
                options.texts(),
                options.numbers(),
                cancellation));
  }

  private static Model load(Options options, CancellableLoad.Load load) {
    return new Model(CancellableLoad.heed(options.loadSignal(), load));
  }

  /** The runtime's version, with the versions of its parts. */
  public static String runtimeVersion() {
    return Text.decode(Native.text(0, Native.VERSION));
  }

  /**
   * What the OpenCL device says of itself that a model of these options would run on, as JSON: {@code
   * name}, {@code driver}, {@code gpu} (the number of an Adreno), {@code limits}, {@code extensions}.
   *
   * @throws AdrenocException.NoDevice there is none, or the app may not see its library
   */
  public static String describeDevice(Options options) {
    checkOptions(options);
    return Text.decode(Native.describeDevice(options.texts(), options.numbers()));
  }

  /** Gives memory of the device back that nobody uses. */
  public static void trimAll() {
    Native.trim(0);
  }

  public String name() {
    return name;
  }

  /** What it runs on. */
  public String device() {
    return device;
  }

  /** What a developer should know of how it runs here, a line each; empty where there is nothing. */
  public String notes() {
    return access.call(model -> Text.decode(Native.text(model, Native.NOTES)));
  }

  /** Its inputs, of the chosen shapes. */
  public List<Tensor> inputs() {
    return access.call(model -> tensors(model, -1, true));
  }

  /** Its outputs, of the chosen shapes. */
  public List<Tensor> outputs() {
    return access.call(model -> tensors(model, -1, false));
  }

  /** The names of its signatures, the usual one first; none where the bundle holds one call. */
  public List<String> signatures() {
    return access.call(
        model -> {
          List<String> names = new ArrayList<>();
          int count = Native.signatures(model);
          for (int i = 0; i < count; i++) {
            names.add(Text.decode(Native.signature(model, i)));
          }
          return Collections.unmodifiableList(names);
        });
  }

  /**
   * Chooses the call of that name: inputs, outputs and sets of shapes are its own from then on, and
   * nothing is bound. Where there is none of that name, all stays.
   */
  public void setSignature(String name) {
    byte[] text = Text.encode(Objects.requireNonNull(name, "the signature is null"));
    access.applyInTurn(
        model -> {
          Native.setSignature(model, text);
          forgetBound(model);
        });
  }

  /** How many sets of shapes it was compiled for. */
  public int bucketCount() {
    return access.call(Native::buckets);
  }

  /** The inputs of one of these sets. */
  public List<Tensor> inputsOf(int bucket) {
    return access.call(model -> tensors(model, checkBucket(bucket), true));
  }

  /** The outputs of one of these sets. */
  public List<Tensor> outputsOf(int bucket) {
    return access.call(model -> tensors(model, checkBucket(bucket), false));
  }

  /**
   * Chooses the smallest set of shapes that takes inputs of these, one for each input; null for
   * whatever the set has. Afterwards nothing is bound. Where no set takes them, all stays.
   */
  public void setInputShapes(long[]... shapes) {
    Objects.requireNonNull(shapes, "the input shapes are null, expected one for each input");
    access.applyInTurn(
        model -> {
          Native.chooseShapes(model, shapes);
          forgetBound(model);
        });
  }

  /** Each run reads the input from what remains of this direct buffer, in place. */
  public void bindInput(int index, ByteBuffer buffer) {
    access.applyInTurn(model -> bindTo(model, true, index, buffer));
  }

  /** Each run writes the output to what remains of this direct buffer; null: it is not moved. */
  public void bindOutput(int index, ByteBuffer buffer) {
    access.applyInTurn(model -> bindTo(model, false, index, buffer));
  }

  /**
   * Each run reads the input from this hardware buffer of the format BLOB, and nothing is copied.
   * It must stay open until another is bound.
   *
   * @throws AdrenocException.Unsupported the device's OpenCL takes no such buffers
   */
  public void bindHardwareInput(int index, HardwareBuffer buffer) {
    bindHardware(true, index, buffer);
  }

  /** Each run writes the output to this hardware buffer of the format BLOB. */
  public void bindHardwareOutput(int index, HardwareBuffer buffer) {
    bindHardware(false, index, buffer);
  }

  /** Computes what is bound; returns when the outputs are there. */
  public void run() {
    access.applyInTurn(Native::run);
  }

  /** Binds these direct buffers, one for each input and each output, and computes. */
  public void run(ByteBuffer[] inputs, ByteBuffer[] outputs) {
    checkCount("inputs", inputs.length, boundInputs.length);
    checkCount("outputs", outputs.length, boundOutputs.length);
    access.applyInTurn(model -> runOn(model, inputs, outputs, Native::run));
  }

  /** Computes the outputs of these inputs by name, in new buffers; inputs of the heap are copied. */
  public Map<String, ByteBuffer> run(Map<String, ByteBuffer> inputs) {
    return access.callInTurn(model -> runNamed(model, inputs, Native::run));
  }

  /**
   * The same, until somebody cancels: it ends soon ({@link Options#cancelWithin}), the model can be
   * used at once, and its states are as they were.
   *
   * @throws android.os.OperationCanceledException by the signal
   */
  public Map<String, ByteBuffer> run(Map<String, ByteBuffer> inputs, CancellationSignal signal) {
    CancellableRun run = new CancellableRun();
    return run.heed(signal, model -> runNamed(model, inputs, run::compute), access);
  }

  /** As {@link #run(ByteBuffer[], ByteBuffer[])}, until somebody cancels. */
  public void run(ByteBuffer[] inputs, ByteBuffer[] outputs, CancellationSignal signal) {
    checkCount("inputs", inputs.length, boundInputs.length);
    checkCount("outputs", outputs.length, boundOutputs.length);
    CancellableRun run = new CancellableRun();
    run.heed(
        signal,
        model -> {
          runOn(model, inputs, outputs, run::compute);
          return null;
        },
        access);
  }

  /**
   * Ends all calls that compute for this model or wait to, from any thread: they throw {@link
   * AdrenocException.Cancelled}. Later calls are not meant.
   */
  public void cancel() {
    access.applyAnywhere(Native::cancel);
  }

  /**
   * As {@link #run(Map)}, by a thread of the executor. Cancelling the future before its turn leaves
   * the run out, and ends one that has begun.
   */
  public CompletableFuture<Map<String, ByteBuffer>> runAsync(
      Map<String, ByteBuffer> inputs, Executor executor) {
    CompletableFuture<Map<String, ByteBuffer>> future = new CompletableFuture<>();
    CancellableRun run = new CancellableRun();
    future.whenComplete(
        (results, error) -> {
          if (future.isCancelled()) {
            run.cancel();
          }
        });
    executor.execute(
        () -> {
          if (future.isDone()) {
            return;
          }
          try {
            future.complete(
                access.callInTurn(model -> runNamed(model, inputs, run::compute)));
          } catch (RuntimeException | Error error) {
            future.completeExceptionally(error);
          }
        });
    return future;
  }

  /** Computes so often and waits once, at the end; the milliseconds of one run. */
  public double runRepeatedly(int runs) {
    return access.callInTurn(model -> Native.runRepeatedly(model, runs));
  }

  /**
   * Compares what the device computes with the proof that {@code adrenoc prove} put into the bundle.
   * Takes some runs, and nothing once a driver is known by the cache folder.
   *
   * @throws AdrenocException.WrongResults it computes other numbers
   * @throws AdrenocException.Unsupported the bundle carries no proof
   */
  public void verify() {
    access.applyInTurn(Native::verify);
  }

  /** Times of the load and of the last run that has ended; waits for none that goes on. */
  public Times times() {
    return access.call(model -> new Times(Native.times(model)));
  }

  /**
   * The tokens of a decoder.
   *
   * @throws AdrenocException.Unsupported the model is no decoder
   */
  public Generation generation() {
    Generation made = new Generation(access);
    made.tokens();
    return made;
  }

  /** Gives device memory back, as in onTrimMemory; the next run takes longer. */
  public void trim() {
    access.apply(Native::trim);
  }

  /** Waits for the calls that go on, ends a generation, and gives all memory back. */
  @Override
  public void close() {
    access.close();
    Arrays.fill(boundInputs, null);
    Arrays.fill(boundOutputs, null);
  }

  private List<Tensor> tensors(long model, int bucket, boolean areInputs) {
    int count = areInputs ? boundInputs.length : boundOutputs.length;
    List<Tensor> found = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      found.add(Native.tensor(model, bucket, areInputs, i));
    }
    return Collections.unmodifiableList(found);
  }

  private Map<String, ByteBuffer> runNamed(
      long model, Map<String, ByteBuffer> inputs, Access.Deed compute) {
    ByteBuffer[] given = Buffers.makeDirect(inputs, tensors(model, -1, true));
    Map<String, ByteBuffer> results = new LinkedHashMap<>();
    for (Tensor made : tensors(model, -1, false)) {
      results.put(made.name(), made.allocate());
    }
    runOn(model, given, results.values().toArray(new ByteBuffer[0]), compute);
    return results;
  }

  private void runOn(
      long model, ByteBuffer[] inputs, ByteBuffer[] outputs, Access.Deed compute) {
    for (int i = 0; i < inputs.length; i++) {
      bindTo(model, true, i, inputs[i]);
    }
    for (int i = 0; i < outputs.length; i++) {
      bindTo(model, false, i, outputs[i]);
    }
    compute.on(model);
  }

  private void bindTo(long model, boolean isInput, int index, ByteBuffer buffer) {
    if (buffer != null) {
      Buffers.checkBindable(buffer, !isInput);
    } else if (isInput) {
      throw new AdrenocException.BadArgument("input " + index + " is null, expected a buffer");
    }
    int from = buffer == null ? 0 : buffer.position();
    int bytes = buffer == null ? 0 : buffer.remaining();
    Native.bind(model, isInput, index, buffer, from, bytes);
    (isInput ? boundInputs : boundOutputs)[index] = buffer;
  }

  private void bindHardware(boolean isInput, int index, HardwareBuffer buffer) {
    Objects.requireNonNull(buffer, "the hardware buffer is null");
    access.applyInTurn(
        model -> {
          Native.bindHardware(model, isInput, index, buffer);
          (isInput ? boundInputs : boundOutputs)[index] = buffer;
        });
  }

  private static void checkOptions(Options options) {
    Objects.requireNonNull(options, "the options are null, expected new Options()");
  }

  private static int checkBucket(int bucket) {
    if (bucket < 0) {
      throw new AdrenocException.BadArgument("bucket " + bucket + ", expected 0 or more");
    }
    return bucket;
  }

  private static void checkCount(String what, int seen, int expected) {
    if (seen != expected) {
      throw new AdrenocException.BadArgument(
          seen + " buffers of " + what + ", expected " + expected);
    }
  }
}
