package android.content.res;

import android.os.ParcelFileDescriptor;
import java.io.Closeable;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;

public class AssetFileDescriptor implements Closeable {
  private final FileInputStream stream;
  private final long offset;
  private final long bytes;

  AssetFileDescriptor(File file, long offset, long bytes) throws IOException {
    this.stream = new FileInputStream(file);
    this.offset = offset;
    this.bytes = bytes;
  }

  public ParcelFileDescriptor getParcelFileDescriptor() {
    return new ParcelFileDescriptor(stream);
  }

  public long getStartOffset() {
    return offset;
  }

  public long getLength() {
    return bytes;
  }

  @Override
  public void close() throws IOException {
    stream.close();
  }
}
