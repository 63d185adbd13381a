import android.content.res.AssetManager;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.adrenoc.AdrenocException;
import org.adrenoc.DeviceMemory;
import org.adrenoc.Model;
import org.adrenoc.Options;
import org.adrenoc.Tensor;
import org.adrenoc.Times;

/** Loads a model in each way, runs it in each way: OPENCL BUNDLE TAR FOLDER-OF-TENSORS CACHE. */
final class Runs {
  private static File tensors;

  public static void main(String[] words) throws Exception {
    Options options = Expect.options(words[0]).cacheFolder(new File(words[4]));
    File tar = new File(words[2]);
    tensors = new File(words[3]);
    byte[] bytes = Expect.read(tar.getParentFile(), tar.getName());
    File apk = new File(tensors, "app.apk");
    byte[] shifted = new byte[4096 + bytes.length];
    System.arraycopy(bytes, 0, shifted, 4096, bytes.length);
    java.nio.file.Files.write(apk.toPath(), shifted);
    AssetManager assets = new AssetManager(apk);
    assets.put("two.adrenoc.tar", 4096, bytes.length);
    AdrenocException.NotFound absent =
        Expect.thrown(
            AdrenocException.NotFound.class, () -> Model.fromAsset(assets, "x.tar", options));
    Expect.words(absent, "the asset x.tar is not there", "noCompress");
    assets.putCompressed("packed.tar", bytes);
    unpack(assets, options, new File(words[4]));

    try (Model first = Model.fromFile(new File(words[1]), options);
        Model second = Model.fromAsset(assets, "two.adrenoc.tar", options);
        Model third = Model.fromBuffer(ByteBuffer.wrap(shifted, 4096, bytes.length), options)) {
      describe(first);
      runBound(first);
      runBoth(first, second);
      runByName(third);
      runLater(second);
      refuse(first);
      runBound(first);
    }
  }

  /** A compressed asset: right, and gone from the folder though the model goes on. */
  private static void unpack(AssetManager assets, Options options, File cache) {
    try (Model model = Model.fromAsset(assets, "packed.tar", options)) {
      String[] left = cache.list((folder, name) -> name.startsWith("adrenoc-"));
      Expect.that(left != null && left.length == 0, "no file is left: " + Arrays.toString(left));
      runByName(model);
      DeviceMemory.onTrimMemory(80);  // all of it, in the background
      runByName(model);
    }
    AssetManager damaged = new AssetManager(cache);
    damaged.putCompressed("packed.tar", new byte[5000]);
    Expect.thrown(
        AdrenocException.BadBundle.class, () -> Model.fromAsset(damaged, "packed.tar", options));
    Options nowhere = Expect.options("").cacheFolder(new File(cache, "absent/folder"));
    Expect.words(
        Expect.thrown(
            AdrenocException.NotFound.class, () -> Model.fromAsset(assets, "packed.tar", nowhere)),
        "cannot be unpacked");
  }

  private static void describe(Model model) {
    Expect.that(model.name().equals("two"), "the model's name is " + model.name());
    Expect.that(model.bucketCount() == 1, "one bucket");
    Expect.that(model.inputsOf(0).toString().equals(model.inputs().toString()), "its inputs");
    Expect.that(model.outputsOf(0).size() == model.outputs().size(), "its outputs");
    Expect.that(!model.device().isEmpty(), "it runs somewhere");
    Expect.that(Model.runtimeVersion().contains("tvm-"), "a version");
    for (Tensor tensor : model.inputs()) {
      Expect.that(tensor.bytes() == 4 * tensor.elements(), "floats have four bytes");
      System.out.println(tensor);
    }
    Times times = model.times();
    Expect.that(times.openMs > 0 && times.runs == 0, "it was opened, and never ran");
    Expect.that(model.notes() != null, "notes");
  }

  private static ByteBuffer input(Tensor tensor) {
    byte[] content = Expect.read(tensors, tensor.name() + ".raw");
    ByteBuffer buffer = tensor.allocate().put(content);
    buffer.rewind();
    return buffer;
  }

  private static boolean isRight(Tensor tensor, ByteBuffer output) {
    return Expect.holds(output, Expect.read(tensors, tensor.name() + ".out"));
  }

  /** Buffers that stay, one of them a part of another. */
  private static void runBound(Model model) {
    Tensor image = model.inputs().get(0);
    ByteBuffer wide = ByteBuffer.allocateDirect((int) image.bytes() + 64);
    wide.position(64);
    wide.put(input(image)).position(64);
    model.bindInput(0, wide);
    model.bindInput(1, input(model.inputs().get(1)));
    System.gc();
    List<ByteBuffer> outputs = new ArrayList<>();
    for (Tensor tensor : model.outputs()) {
      ByteBuffer output = tensor.allocate();
      outputs.add(output);
      model.bindOutput(outputs.size() - 1, output);
    }
    long before = model.times().runs;
    model.run();
    for (int i = 0; i < outputs.size(); i++) {
      Tensor tensor = model.outputs().get(i);
      Expect.that(isRight(tensor, outputs.get(i)), "right: " + tensor);
      outputs.get(i).put(new byte[(int) tensor.bytes()]).rewind();
    }
    Expect.that(model.runRepeatedly(3) > 0, "runs take time");
    Expect.that(isRight(model.outputs().get(0), outputs.get(0)), "right after more runs");
    Expect.that(model.times().runs >= before + 4, "four runs more");
    model.bindOutput(0, null);
    outputs.get(0).put(0, (byte) 77);
    model.trim();
    model.run();
    Expect.that(outputs.get(0).get(0) == 77, "an output that is not bound is not moved");
  }

  /** Two models by two threads at once. */
  private static void runBoth(Model... models) throws Exception {
    List<Thread> threads = new ArrayList<>();
    List<Throwable> wrong = new ArrayList<>();
    for (Model model : models) {
      Thread thread =
          new Thread(
              () -> {
                for (int i = 0; i < 20; i++) {
                  runByName(model);
                }
              });
      thread.setUncaughtExceptionHandler(
          (where, error) -> {
            synchronized (wrong) {
              wrong.add(error);
            }
          });
      threads.add(thread);
      thread.start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    Expect.that(wrong.isEmpty(), "two models at once: " + wrong);
  }

  private static Map<String, ByteBuffer> inputs(Model model) {
    Map<String, ByteBuffer> given = new LinkedHashMap<>();
    for (Tensor tensor : model.inputs()) {
      // Of the heap: copied.
      given.put(tensor.name(), ByteBuffer.wrap(Expect.read(tensors, tensor.name() + ".raw")));
    }
    return given;
  }

  private static void check(Model model, Map<String, ByteBuffer> results) {
    Expect.that(results.size() == model.outputs().size(), "as many as there are outputs");
    for (Tensor tensor : model.outputs()) {
      ByteBuffer result = results.get(tensor.name());
      Expect.that(isRight(tensor, result), "right: " + tensor);
      Expect.that(result.order() == ByteOrder.nativeOrder(), "in the machine's byte order");
    }
  }

  private static void runByName(Model model) {
    check(model, model.run(inputs(model)));
  }

  private static void runLater(Model model) throws Exception {
    check(model, model.runAsync(inputs(model), work -> new Thread(work).start()).get());
    List<Runnable> queue = new ArrayList<>();
    long before = model.times().runs;
    CompletableFuture<?> cancelled = model.runAsync(inputs(model), queue::add);
    cancelled.cancel(false);
    queue.forEach(Runnable::run);
    Expect.that(model.times().runs == before, "a run that was cancelled is left out");
    CompletableFuture<?> wrong = model.runAsync(new LinkedHashMap<>(), Runnable::run);
    try {
      wrong.get();
      throw new AssertionError("a run without inputs went well");
    } catch (ExecutionException error) {
      Expect.that(error.getCause() instanceof AdrenocException.BadArgument, "the cause is told");
    }
  }

  private static void refuse(Model model) {
    Class<AdrenocException.BadArgument> bad = AdrenocException.BadArgument.class;
    ByteBuffer small = ByteBuffer.allocateDirect(8);
    Expect.words(Expect.thrown(bad, () -> model.bindInput(0, small)), "8", "1728");
    Expect.thrown(bad, () -> model.bindInput(9, small));
    Expect.thrown(bad, () -> model.bindInput(-1, small));
    Expect.thrown(bad, () -> model.bindOutput(9, small));
    Expect.thrown(bad, () -> model.bindInput(0, null));
    ByteBuffer heap = ByteBuffer.allocate((int) model.inputs().get(0).bytes());
    Expect.words(Expect.thrown(bad, () -> model.bindInput(0, heap)), "in the heap");
    ByteBuffer fixed = model.outputs().get(0).allocate().asReadOnlyBuffer();
    Expect.words(Expect.thrown(bad, () -> model.bindOutput(0, fixed)), "read-only");
    Expect.thrown(bad, () -> model.inputsOf(1));
    Expect.thrown(bad, () -> model.outputsOf(-1));
    Expect.thrown(bad, () -> model.runRepeatedly(0));
    Expect.thrown(bad, () -> model.setInputShapes(new long[] {1, 3, 5, 5}, null));
    Map<String, ByteBuffer> named = inputs(model);
    named.put("imagf", named.remove("image"));
    Expect.words(Expect.thrown(bad, () -> model.run(named)), "imagf", "[image, bias]");
    ByteBuffer[] one = {input(model.inputs().get(0))};
    Expect.words(Expect.thrown(bad, () -> model.run(one, one)), "1 buffers of inputs, expected 2");
    Expect.thrown(AdrenocException.Unsupported.class, model::generation);
    Expect.thrown(AdrenocException.Unsupported.class, model::verify);
    model.setInputShapes(new long[] {1, 3, 12, 12}, null);
    // Nothing is bound now.
    Expect.thrown(bad, model::run);
    Expect.that(Arrays.equals(model.inputs().get(0).shape(), new long[] {1, 3, 12, 12}), "shape");
  }
}
