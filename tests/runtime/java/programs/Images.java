import android.graphics.Bitmap;
import android.media.Image;
import java.io.File;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import org.adrenoc.AdrenocException;
import org.adrenoc.ImageInput;
import org.adrenoc.Tensor;

/**
 * Makes tensors of pictures: FOLDER; each line of FOLDER/cases is a name, where the picture comes
 * from, its width and height, degrees, "crop" or "stretch", "rgb" or "bgr", type, extents.
 */
final class Images {
  private static final int GAP = 12;

  public static void main(String[] words) throws Exception {
    File folder = new File(words[0]);
    for (String line : Files.readAllLines(new File(folder, "cases").toPath())) {
      String[] facts = line.split(" ");
      ImageInput input = new ImageInput(tensor(facts[7], facts[8]));
      input.stretch(facts[5].equals("stretch")).bgr(facts[6].equals("bgr"));
      input.mean(.485f, .456f, .406f).deviation(.229f, .224f, .225f);
      ByteBuffer made = tensor(facts[7], facts[8]).allocate();
      write(input, folder, facts, made);
      byte[] bytes = new byte[made.remaining()];
      made.get(bytes);
      Files.write(new File(folder, facts[0] + ".raw").toPath(), bytes);
    }
    refuse();
  }

  private static Tensor tensor(String type, String extents) throws Exception {
    String[] numbers = extents.split("x");
    long[] shape = new long[numbers.length];
    long bytes = type.equals("float32") ? 4 : type.equals("int64") ? 8 : 1;
    for (int i = 0; i < shape.length; i++) {
      shape[i] = Long.parseLong(numbers[i]);
      bytes *= shape[i];
    }
    Constructor<Tensor> made =
        Tensor.class.getDeclaredConstructor(
            byte[].class, byte[].class, long[].class, long.class);
    made.setAccessible(true);
    return made.newInstance(
        "x".getBytes(StandardCharsets.UTF_8), type.getBytes(StandardCharsets.UTF_8), shape, bytes);
  }

  private static void write(ImageInput input, File folder, String[] facts, ByteBuffer made) {
    int width = Integer.parseInt(facts[2]);
    int height = Integer.parseInt(facts[3]);
    int degrees = Integer.parseInt(facts[4]);
    if (facts[1].equals("yuv")) {
      input.write(yuv(folder, width, height), degrees, made);
      return;
    }
    byte[] pixels = withGaps(Expect.read(folder, facts[0] + ".rgba"), width * 4, height);
    int stride = width * 4 + GAP;
    if (facts[1].equals("bitmap")) {
      input.write(new Bitmap(pixels, width, height, Bitmap.Config.ARGB_8888), degrees, made);
    } else if (facts[1].equals("hardware")) {
      input.write(new Bitmap(pixels, width, height, Bitmap.Config.HARDWARE), degrees, made);
    } else if (facts[1].equals("image")) {
      Picture picture = new Picture(width, height, 1, new Layer(pixels, stride, 4));
      input.write(picture, degrees, made);
    } else {
      // The last row of a camera's plane has no gap.
      ByteBuffer plane = direct(pixels);
      plane.limit(plane.limit() - GAP);
      input.write(plane, width, height, stride, degrees, made);
    }
  }

  /** As phones have it: the chromas lie between each other, and one is the other's, a byte later. */
  private static Image yuv(File folder, int width, int height) {
    int half = (width + 1) / 2;
    byte[] luma = withGaps(Expect.read(folder, "luma"), width, height);
    byte[] both = Expect.read(folder, "chroma");
    byte[] shifted = new byte[both.length - 1];
    System.arraycopy(both, 1, shifted, 0, shifted.length);
    return new Picture(
        width,
        height,
        35,
        new Layer(luma, width + GAP, 1),
        new Layer(both, 2 * half, 2),
        new Layer(shifted, 2 * half, 2));
  }

  private static byte[] withGaps(byte[] pixels, int rowBytes, int rows) {
    byte[] made = new byte[(rowBytes + GAP) * rows];
    for (int row = 0; row < rows; row++) {
      System.arraycopy(pixels, row * rowBytes, made, row * (rowBytes + GAP), rowBytes);
    }
    return made;
  }

  private static ByteBuffer direct(byte[] content) {
    ByteBuffer made = ByteBuffer.allocateDirect(content.length + 3);
    made.position(3);
    made.put(content);
    made.position(3);
    return made;
  }

  private static void refuse() throws Exception {
    Class<AdrenocException.BadArgument> bad = AdrenocException.BadArgument.class;
    for (String shape : new String[] {"1x4x8x8", "2x3x8x8", "3x8", "1x3x8x8x1"}) {
      Tensor other = tensor("float32", shape);
      Expect.words(Expect.thrown(bad, () -> new ImageInput(other)), "is no picture");
    }
    Tensor numbers = tensor("int64", "1x3x8x8");
    Expect.thrown(bad, () -> new ImageInput(numbers));
    Tensor tensor = tensor("uint8", "1x8x8x3");
    ImageInput input = new ImageInput(tensor);
    ByteBuffer made = tensor.allocate();
    ByteBuffer pixels = ByteBuffer.allocateDirect(100);
    Expect.words(
        Expect.thrown(bad, () -> input.write(pixels, 5, 5, 21, 0, made)),
        "has 100 bytes, expected 104");
    input.write(pixels, 5, 5, 20, -90, made);
    Expect.thrown(bad, () -> input.write(pixels, 5, 5, 20, 45, made));
    Expect.thrown(bad, () -> input.write(pixels, 0, 5, 20, 0, made));
    Expect.thrown(bad, () -> input.write(pixels, 5, -5, 20, 0, made));
    Expect.thrown(bad, () -> input.write(pixels, 5, 5, 20, 0, pixels));
    ByteBuffer heap = ByteBuffer.allocate(100);
    Expect.thrown(bad, () -> input.write(heap, 5, 5, 20, 0, made));
    Image jpeg = new Picture(5, 5, 256, new Layer(new byte[100], 20, 4));
    Expect.words(Expect.thrown(bad, () -> input.write(jpeg, 0, made)), "format 256");
    for (int format : new int[] {1, 35}) {
      Image hidden = new Picture(5, 5, format);
      Expect.words(Expect.thrown(bad, () -> input.write(hidden, 0, made)), "has 0 planes");
    }
  }

  private static final class Picture extends Image {
    private final int width;
    private final int height;
    private final int format;
    private final Layer[] layers;

    Picture(int width, int height, int format, Layer... layers) {
      this.width = width;
      this.height = height;
      this.format = format;
      this.layers = layers;
    }

    @Override
    public int getWidth() {
      return width;
    }

    @Override
    public int getHeight() {
      return height;
    }

    @Override
    public int getFormat() {
      return format;
    }

    @Override
    public Plane[] getPlanes() {
      return layers;
    }
  }

  private static final class Layer extends Image.Plane {
    private final ByteBuffer buffer;
    private final int rowStride;
    private final int pixelStride;

    Layer(byte[] content, int rowStride, int pixelStride) {
      this.buffer = direct(content);
      this.rowStride = rowStride;
      this.pixelStride = pixelStride;
    }

    @Override
    public ByteBuffer getBuffer() {
      return buffer;
    }

    @Override
    public int getRowStride() {
      return rowStride;
    }

    @Override
    public int getPixelStride() {
      return pixelStride;
    }
  }
}
