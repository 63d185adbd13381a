package org.adrenoc;

import android.content.res.AssetManager;
import android.os.ParcelFileDescriptor;
import java.io.Closeable;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;

/**
 * An asset that the APK holds compressed, in a file that has no name any more: it takes room on the
 * disk for as long as somebody maps it, and nothing is left behind however the process ends.
 */
final class Unpacked implements Closeable {
  private static final int CHUNK_BYTES = 1 << 16;

  private final ParcelFileDescriptor descriptor;
  private final long bytes;

  private Unpacked(ParcelFileDescriptor descriptor, long bytes) {
    this.descriptor = descriptor;
    this.bytes = bytes;
  }

  /** `folder` may be null, for the system's choice. */
  static Unpacked of(AssetManager assets, String name, File folder) throws IOException {
    try (InputStream packed = assets.open(name)) {
      if (folder != null) {
        folder.mkdir(); // as the runtime makes it; where it cannot be had, the next line says so
      }
      File file = File.createTempFile("adrenoc-", ".tar", folder);
      try {
        long bytes = copy(packed, file);
        return new Unpacked(
            ParcelFileDescriptor.open(file, ParcelFileDescriptor.MODE_READ_ONLY), bytes);
      } finally {
        file.delete();
      }
    }
  }

  int descriptor() {
    return descriptor.getFd();
  }

  long bytes() {
    return bytes;
  }

  @Override
  public void close() throws IOException {
    descriptor.close();
  }

  private static long copy(InputStream from, File file) throws IOException {
    byte[] chunk = new byte[CHUNK_BYTES];
    long bytes = 0;
    try (OutputStream to = new FileOutputStream(file)) {
      for (int count = from.read(chunk); count >= 0; count = from.read(chunk)) {
        to.write(chunk, 0, count);
        bytes += count;
      }
    }
    return bytes;
  }
}
