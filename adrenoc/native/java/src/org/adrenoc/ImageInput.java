package org.adrenoc;

import android.graphics.Bitmap;
import android.graphics.ImageFormat;
import android.graphics.PixelFormat;
import android.media.Image;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Makes pictures the input of a model: cut to its proportions, resized, turned, scaled.
 *
 * <pre>
 *   ImageInput image = new ImageInput(model.inputs().get(0)).mean(.485f, .456f, .406f)
 *       .deviation(.229f, .224f, .225f);
 *   image.write(bitmap, 0, pixels);
 * </pre>
 *
 * Floats become (value / 255 - mean) / deviation; {@code uint8} takes values as they are, {@code
 * int8} those less 128. One thread at a time may use it.
 */
public final class ImageInput {
  private static final int CHANNELS = 3;
  private static final int QUARTER_DEGREES = 90;

  private final String name;
  private final int width;
  private final int height;
  private final boolean isPlanar;
  private final int type;
  private final long bytes;
  private final float[] scaling = {0, 0, 0, 1, 1, 1};
  private boolean crops = true;
  private boolean isBgr;
  private ByteBuffer copied;

  /** For an input of one picture of three channels, before height and width or behind them. */
  public ImageInput(Tensor input) {
    long[] shape = input.shape();
    int rank = shape.length;
    boolean hasPicture = rank == 3 || rank == 4 && shape[0] == 1;
    isPlanar = hasPicture && shape[rank - 3] == CHANNELS;
    type = typeOf(input.type());
    if (type < 0 || !isPlanar && !(hasPicture && shape[rank - 1] == CHANNELS)) {
      throw new AdrenocException.BadArgument(
          input + " is no picture, expected float32, uint8 or int8 of [1, 3, height, width] or"
              + " [1, height, width, 3]");
    }
    name = input.name();
    height = (int) shape[isPlanar ? rank - 2 : rank - 3];
    width = (int) shape[isPlanar ? rank - 1 : rank - 2];
    bytes = input.bytes();
  }

  /** What is taken off red, green and blue, of values from 0 to 1; 0 unless this is called. */
  public ImageInput mean(float red, float green, float blue) {
    return scale(0, red, green, blue);
  }

  /** What they are divided by then; 1 unless this is called. */
  public ImageInput deviation(float red, float green, float blue) {
    return scale(CHANNELS, red, green, blue);
  }

  /** Whether blue comes first. */
  public ImageInput bgr(boolean isFirst) {
    isBgr = isFirst;
    return this;
  }

  /** Whether all of a picture is stretched, in place of the middle of it cut out. */
  public ImageInput stretch(boolean stretches) {
    crops = !stretches;
    return this;
  }

  /** A bitmap, turned clockwise by 0, 90, 180 or 270 degrees. */
  public void write(Bitmap bitmap, int degrees, ByteBuffer into) {
    Bitmap plain = bitmap;
    if (bitmap.getConfig() != Bitmap.Config.ARGB_8888) {
      plain = bitmap.copy(Bitmap.Config.ARGB_8888, false);
    }
    int size = plain.getRowBytes() * plain.getHeight();
    if (copied == null || copied.capacity() < size) {
      copied = ByteBuffer.allocateDirect(size).order(ByteOrder.nativeOrder());
    }
    copied.clear();
    plain.copyPixelsToBuffer(copied);
    copied.flip();
    write(copied, plain.getWidth(), plain.getHeight(), plain.getRowBytes(), degrees, into);
  }

  /** What a camera gives: an image of YUV_420_888 or RGBA_8888. */
  public void write(Image image, int degrees, ByteBuffer into) {
    Image.Plane[] planes = image.getPlanes();
    int count = planes.length;
    boolean isYuv = image.getFormat() == ImageFormat.YUV_420_888;
    if (!isYuv && image.getFormat() != PixelFormat.RGBA_8888) {
      throw new AdrenocException.BadArgument(
          "the image has the format " + image.getFormat() + ", expected YUV_420_888 or RGBA_8888");
    }
    int expected = isYuv ? CHANNELS : 1;
    if (count != expected) {
      throw new AdrenocException.BadArgument(
          "the image has " + count + " planes, expected " + expected);
    }
    ByteBuffer[] buffers = new ByteBuffer[count];
    int[] facts = new int[2 + 2 * count];
    facts[0] = image.getWidth();
    facts[1] = image.getHeight();
    for (int i = 0; i < count; i++) {
      buffers[i] = planes[i].getBuffer();
      facts[2 + 2 * i] = planes[i].getRowStride();
      facts[3 + 2 * i] = planes[i].getPixelStride();
    }
    write(buffers, facts, degrees, into);
  }

  /** Pixels of RGBA in a direct buffer, as a plane of CameraX's ImageProxy has them. */
  public void write(
      ByteBuffer rgba, int pixelsWide, int pixelsHigh, int rowStride, int degrees,
      ByteBuffer into) {
    int[] facts = {pixelsWide, pixelsHigh, rowStride, 4};
    write(new ByteBuffer[] {rgba}, facts, degrees, into);
  }

  private void write(ByteBuffer[] planes, int[] facts, int degrees, ByteBuffer into) {
    Buffers.checkBindable(into, true);
    if (into.remaining() != bytes) {
      throw new AdrenocException.BadArgument(
          "the buffer for " + name + " has " + into.remaining() + " bytes, expected " + bytes);
    }
    if (degrees % QUARTER_DEGREES != 0) {
      throw new AdrenocException.BadArgument(degrees + " degrees, expected 0, 90, 180 or 270");
    }
    int[] froms = new int[planes.length];
    int[] sizes = new int[planes.length];
    for (int i = 0; i < planes.length; i++) {
      froms[i] = planes[i].position();
      sizes[i] = planes[i].remaining();
    }
    for (int fact : facts) {
      if (fact <= 0) {
        throw new AdrenocException.BadArgument(
            "sizes and strides of a picture are 1 or more, not " + fact);
      }
    }
    int turns = Math.floorMod(degrees / QUARTER_DEGREES, 4);
    int[] how = {width, height, turns, crops ? 1 : 0, isPlanar ? 1 : 0, isBgr ? 1 : 0, type};
    Native.writePixels(planes, froms, sizes, facts, how, scaling, into, into.position());
  }

  private ImageInput scale(int from, float red, float green, float blue) {
    scaling[from] = red;
    scaling[from + 1] = green;
    scaling[from + 2] = blue;
    return this;
  }

  /** As the native half numbers them; -1 for others. */
  private static int typeOf(String name) {
    switch (name) {
      case "float32":
        return 0;
      case "uint8":
        return 1;
      case "int8":
        return 2;
      default:
        return -1;
    }
  }
}
