package android.content.res;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;

/** Assets that lie somewhere in a file, as in an APK. */
public final class AssetManager {
  private final Map<String, long[]> places = new HashMap<>();
  private final File apk;

  public AssetManager(File apk) {
    this.apk = apk;
  }

  public void put(String name, long offset, long bytes) {
    places.put(name, new long[] {offset, bytes});
  }

  public AssetFileDescriptor openFd(String fileName) throws IOException {
    long[] place = places.get(fileName);
    if (place == null) {
      throw new FileNotFoundException(fileName);
    }
    return new AssetFileDescriptor(apk, place[0], place[1]);
  }
}
