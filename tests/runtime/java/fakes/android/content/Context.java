package android.content;

import android.content.res.AssetManager;
import java.io.File;

/** An app whose folders lie in one. */
public class Context {
  private final AssetManager assets;
  private final File folder;

  public Context(AssetManager assets, File folder) {
    this.assets = assets;
    this.folder = folder;
  }

  public AssetManager getAssets() {
    return assets;
  }

  public File getNoBackupFilesDir() {
    return folder;
  }

  public File getCacheDir() {
    return new File(folder, "cache");
  }
}
