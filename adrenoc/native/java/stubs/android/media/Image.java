package android.media;

import java.nio.ByteBuffer;

public abstract class Image {
  public abstract int getWidth();

  public abstract int getHeight();

  public abstract int getFormat();

  public abstract Plane[] getPlanes();

  public abstract static class Plane {
    public abstract ByteBuffer getBuffer();

    public abstract int getRowStride();

    public abstract int getPixelStride();
  }
}
