package android.content.res;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.HashMap;
import java.util.Map;
import java.util.zip.DeflaterOutputStream;
import java.util.zip.InflaterInputStream;

/** Assets that lie somewhere in a file, as in an APK, or compressed. */
public final class AssetManager {
  private final Map<String, long[]> places = new HashMap<>();
  private final Map<String, byte[]> compressed = new HashMap<>();
  private final File apk;

  public AssetManager(File apk) {
    this.apk = apk;
  }

  public void put(String name, long offset, long bytes) {
    places.put(name, new long[] {offset, bytes});
  }

  public void putCompressed(String name, byte[] content) {
    ByteArrayOutputStream packed = new ByteArrayOutputStream();
    try (DeflaterOutputStream to = new DeflaterOutputStream(packed)) {
      to.write(content);
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
    compressed.put(name, packed.toByteArray());
  }

  public AssetFileDescriptor openFd(String fileName) throws IOException {
    long[] place = places.get(fileName);
    if (place == null) {
      throw new FileNotFoundException(
          compressed.containsKey(fileName)
              ? "This file can not be opened as a file descriptor; it is probably compressed"
              : fileName);
    }
    return new AssetFileDescriptor(apk, place[0], place[1]);
  }

  public InputStream open(String fileName) throws IOException {
    byte[] packed = compressed.get(fileName);
    if (packed != null) {
      return new InflaterInputStream(new ByteArrayInputStream(packed));
    }
    if (!places.containsKey(fileName)) {
      throw new FileNotFoundException(fileName);
    }
    return new FileInputStream(apk);
  }
}
